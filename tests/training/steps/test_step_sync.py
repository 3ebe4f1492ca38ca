"""The step's small all-reduce: losses and requests, and the evidence that every micro-batch was used exactly once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.apply import parallelize
from paceline.parallelism.plan import Coordinates, Degrees, MicroBatchAssignment, degrees
from paceline.parallelism.tree import TreeNode
from paceline.training.errors import SampleAccountingError
from paceline.training.link import RankPlace
from paceline.training.spec.job import JobSpec
from paceline.training.state import PartialStep, TrainState, new_state
from paceline.training.steps.step import LocalStepRunner
from paceline.training.steps.step_sync import StepSync, require_once_each
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt

CPU = torch.device("cpu")
MICRO_BATCHES = 4


@dataclass(frozen=True)
class Asked:
    pause_wanted: bool = False
    checkpoint_wanted: bool = False
    leave_wanted: bool = False
    gradients_wanted: bool = False
    outcome_bytes: int | None = None


def told(world: RankPlace, *who: int) -> tuple[float, bool, bool, bool, bool, tuple[int, ...] | None]:
    """Rank 0 keeps micro-batches 0 and 1 from an earlier generation and computes 3; rank 1 computes 2 and is asked to save;
    `who` know where to go and that gradients are asked for, and have written their part of a checkpoint."""
    group = join(world, GroupAborter())
    partial = PartialStep(5)
    if world.rank == 0:
        partial = PartialStep(5, {0: torch.tensor(1.0), 1: torch.tensor(2.0)}, {TreeNode(1, 0): []})
    news = StepSync(partial, MICRO_BATCHES, Coordinates(Degrees(replicate=2), world.rank), CPU)
    news.add(3 - world.rank, torch.tensor(4.0))
    size = 300 * world.rank if world.rank in who else None
    asked = Asked(checkpoint_wanted=world.rank == 1, leave_wanted=world.rank in who, gradients_wanted=world.rank in who, outcome_bytes=size)
    agreed = news.read(news.send(group, asked)(), world.world_size)
    group.close()
    return agreed.loss, agreed.pause, agreed.checkpoint, agreed.leave, agreed.gradients, agreed.outcomes


def test_everyone_hears_the_whole_loss_and_every_request() -> None:
    assert run_ranks(told, 2) == [(1.0 + 2.0 + 4.0 + 4.0, False, True, False, False, None)] * 2


@pytest.mark.parametrize(("who", "all_can", "outcomes"), [((0,), False, None), ((0, 1), True, (0, 300))])
def test_nobody_leaves_records_or_publishes_before_everyone_can(
    who: tuple[int, ...], all_can: bool, outcomes: tuple[int, ...] | None
) -> None:
    assert [each[-3:] for each in run_ranks(told, 2, *who)] == [(all_can, all_can, outcomes)] * 2


def told_by_parts(world: RankPlace) -> float:
    """Two data ranks x context 2 x tensor 2: every rank has a quarter of the loss of its micro-batch."""
    group, coordinates = join(world, GroupAborter()), Coordinates(Degrees(replicate=2, context=2, tensor=2), world.rank)
    news = StepSync(PartialStep(5), 2, coordinates, CPU)
    news.add(coordinates.data_rank, torch.tensor(0.25))
    agreed = news.read(news.send(group, Asked())(), world.world_size)
    group.close()
    return agreed.loss


def test_ranks_that_find_the_same_loss_are_heard_once_and_those_with_parts_of_it_all() -> None:
    assert run_ranks(told_by_parts, 8) == [2 * 2 * 0.25] * 8


def test_what_is_missing_or_there_twice_is_named() -> None:
    require_once_each(7, [1.0, 1.0])
    with pytest.raises(SampleAccountingError, match="step 7 would use 2 times micro-batch 1, 0 times micro-batch 2; each of its 4 must"):
        require_once_each(7, [1.0, 2.0, 0.0, 1.0])


def parameters(state: TrainState) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in state.task.model.parameters()]


@pytest.mark.parametrize("reproducible", [True, False])
def test_a_wrong_deal_ends_the_step_before_the_update(tmp_path: Path, reproducible: bool) -> None:
    spec = JobSpec.model_validate(tiny_gpt() | {"reproducible": reproducible})
    state, group = new_state(spec, CPU, tmp_path), SoloGroup()
    wrapped = parallelize(state.task.model, degrees("ddp", 1), CPU, group, reproducible=reproducible)
    before = parameters(state)
    step_runner = LocalStepRunner(spec, state, group, wrapped, Coordinates(), MicroBatchAssignment(((0, 1, 1, 3),)))
    with pytest.raises(SampleAccountingError, match="step 1 would use 2 times micro-batch 1, 0 times micro-batch 2"):
        step_runner.run(Asked())
    assert state.step == 0
    assert all(torch.equal(one, other) for one, other in zip(before, parameters(state), strict=True))
