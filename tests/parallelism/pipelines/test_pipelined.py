"""Pipelines train as one process does: losses, gradient norms over some steps, an evaluation and the parameters after them."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest
import torch

from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.pipelines import order
from paceline.parallelism.pipelines.chain import Boundary, Chain
from paceline.parallelism.pipelines.pipelined import PipelinePosition, pipeline
from paceline.parallelism.pipelines.schedules import SCHEDULES as SCHEDULES_BY_NAME
from paceline.parallelism.pipelines.schedules import OperationKind, PipelineAction, ScheduleName
from paceline.parallelism.pipelines.stage import TreeAccumulator
from paceline.parallelism.pipelines.stages import TooFewUnitsError
from paceline.parallelism.pipelines.step import BoundaryMismatchError, LocalPipeline, PipelineStep
from paceline.parallelism.plan import assign_evenly
from tests.parallelism.parity import STEPS
from tests.parallelism.pipelines.runs import (
    CONTEXT,
    CPU,
    Case,
    Run,
    Step,
    make,
    near,
    one_process,
    require_equal,
    trained_all,
    trained_alone,
)
from tests.ranks import run_ranks
from tests.release_only import AT_LENGTH

BOUND = 1e-5
BF16_BOUND = 5e-3
RANKS_SECONDS = 110.0

SCHEDULES = [
    Case("gpipe"),
    Case("1f1b"),
    Case("interleaved_1f1b", chunks=2),
    Case("zero_bubble"),
    Case("zero_bubble", chunks=2),
    Case("zero_bubble_v", chunks=2),
]

TWO_KINDS: list[tuple[ScheduleName, int]] = [("1f1b", 1), ("zero_bubble_v", 2)]


def named(case: Case) -> str:
    return f"{case.schedule}-{case.chunks}-{case.model}-{case.samples}"


def runs_of(ranks: int, *cases: Case) -> list[list[Run]]:
    """Return by case the results of every rank."""
    by_rank = run_ranks(trained_all, ranks, cases, timeout=RANKS_SECONDS)
    return [list(runs) for runs in zip(*by_rank, strict=True)]


@pytest.mark.parametrize("case", SCHEDULES, ids=named)
def test_on_one_rank_a_schedule_changes_nothing(case: Case) -> None:
    require_equal(case, [trained_alone(case)], BOUND)


@pytest.mark.parametrize("ranks", [2, 4])
def test_every_schedule_trains_as_one_process(ranks: int) -> None:
    """A GPT with dropout, and tied embeddings on its first and last stage."""
    for case, runs in zip(SCHEDULES, runs_of(ranks, *SCHEDULES), strict=True):
        require_equal(case, runs, BOUND)
        assert {run.bubble for run in runs} == {runs[0].bubble}, named(case)
        assert all(run.bubble and 0 <= run.bubble.measured < 1 for run in runs), named(case)


def test_pipelines_beside_each_other_add_up() -> None:
    """2 x 2: two pipelines of two ranks, one flat sum for each stage."""
    chosen = SCHEDULES if AT_LENGTH else [Case(name, chunks) for name, chunks in TWO_KINDS]
    cases = [replace(case, replicas=2) for case in chosen]
    for case, runs in zip(cases, runs_of(4, *cases), strict=True):
        require_equal(case, runs, BOUND)


def test_any_number_of_micro_batches() -> None:
    """Fewer than stages, one (a model split by layers), and a smaller last one."""
    few = [Case("1f1b", samples=4), Case("interleaved_1f1b", 2, samples=6), Case("zero_bubble_v", 2, samples=6)]
    cases = [*few, Case("gpipe", samples=2), Case("1f1b", samples=7), Case("zero_bubble", 2, samples=9)]
    for case, runs in zip(cases, runs_of(4, *cases), strict=True):
        require_equal(case, runs, BOUND)


def test_pipelines_with_unequal_shares_add_up_and_one_may_have_nothing() -> None:
    cases = [Case("1f1b", replicas=2, samples=10), Case("zero_bubble", replicas=2, samples=2)]
    for case, runs in zip(cases, runs_of(4, *cases), strict=True):
        require_equal(case, runs, BOUND)


@pytest.mark.parametrize("model", ["frozen", "untied", "normed", "mlp", "resnet"])
def test_other_models(model: str) -> None:
    """Models with frozen parameters, with running statistics, and with another kind of loss."""
    steps, micro_batch = (5, 2) if model == "resnet" else (STEPS, 8)  # statistics over two samples are too steep to compare
    cases = [Case(name, chunks, 1, model, 3 * micro_batch, micro_batch, steps) for name, chunks in TWO_KINDS]
    for case, runs in zip(cases, runs_of(2, *cases), strict=True):
        require_equal(case, runs, BOUND)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_loss_that_draws_before_it_calls_the_model_and_asks_for_its_mode(ranks: int) -> None:
    """Inputs were mixed with one permutation and targets with another, in evaluations too; each stage may be on another rank or all on one."""
    cases = [Case(name, chunks, model="mixed") for name, chunks in TWO_KINDS]
    for case, runs in zip(cases, [[trained_alone(case)] for case in cases] if ranks == 1 else runs_of(ranks, *cases), strict=True):
        require_equal(case, runs, BOUND)


def test_running_statistics_are_averaged_over_the_replicas() -> None:
    """Each pipeline's statistics follow its own micro-batches, as under plain DDP, so that they are not those of one process."""
    case = Case("1f1b", 1, 2, "normed", samples=32, micro_batch=8, steps=5)
    (runs,) = runs_of(4, case)
    near(runs[0].losses, one_process(case).losses, BOUND, "losses")
    assert any(name.endswith("running_mean") for name in runs[0].state)
    assert [runs[0].state, runs[2].state] == [runs[1].state, runs[3].state]


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
def test_a_dummy_micro_batch_leaves_running_statistics_as_they_were(schedule: ScheduleName) -> None:
    """A pipeline of shards with a micro-batch less than the busiest counted its first one twice, which another pipeline counts."""
    case = Case(schedule, model="normed")
    model, units = make(case)
    pipelined = pipeline(model, units, Step(case, 1), PipelinePosition.of(SoloGroup()), schedule, CPU)
    pipelined.begin_step(assign_evenly(2, 1), {})
    step = PipelineStep(pipelined.pipe, [0, 1, 0], Step(case, 1), counted=2)
    step.run(order.programs(SCHEDULES_BY_NAME[schedule](ranks=1, micro_batches=3, chunks=1))[0])
    counters = [buffer.item() for name, buffer in model.named_buffers() if name.endswith("num_batches_tracked")]
    assert counters == [2] * 6


def test_bf16_is_computed_alike() -> None:
    """Stages take the same roundings, but gradients of tied weights are added up in another order: now and then a weight is rounded to its
    neighbour in bf16, 0.4 % away."""
    case = Case("1f1b", precision="bf16")
    (runs,) = runs_of(2, case)
    require_equal(case, runs, BF16_BOUND)


def test_stages_may_be_cut_by_measured_time() -> None:
    case = Case("1f1b", measured=True)
    (runs,) = runs_of(2, case)
    require_equal(case, runs, BOUND)


def test_more_stages_than_blocks_are_refused() -> None:
    with pytest.raises(TooFewUnitsError, match="9 pipeline stages, but the model has 8 units"):
        trained_alone(Case("zero_bubble", chunks=9))


def test_samples_of_another_shape_are_refused_before_they_are_sent() -> None:
    pipe = LocalPipeline(SoloGroup(), (0,), {}, [Boundary((CONTEXT, 16), torch.float32, has_gradient=True)], CPU)
    step = PipelineStep(pipe, [0], Step(Case(), 1), counted=1)
    step.require_expected(PipelineAction(OperationKind.FORWARD, 0, 0), torch.zeros(2, CONTEXT, 16))
    with pytest.raises(BoundaryMismatchError, match=r"stage 0 gives torch.float32 \[2, 5, 16\], but its neighbour expects .*\[2, 8, 16\]"):
        step.require_expected(PipelineAction(OperationKind.FORWARD, 0, 0), torch.zeros(2, 5, 16))


def test_a_stage_gives_a_parameter_its_gradient_in_the_memory_order_of_that_parameter() -> None:
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    accumulator = TreeAccumulator(cast(Chain, model), SoloGroup())
    accumulator.begin_step(assign_evenly(1, 1))
    with accumulator.forward(0):
        pass
    with accumulator.backward(0):
        model.weight.grad = torch.arange(108.0).view(4, 3, 3, 3)
    accumulator.done(0)
    accumulator.finish_step()
    assert model.weight.grad.stride() == model.weight.stride()
    assert torch.equal(model.weight.grad, torch.arange(108.0).view(4, 3, 3, 3))
