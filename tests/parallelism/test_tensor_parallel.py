"""A GPT cut over the tensor axis trains as one process does."""

from __future__ import annotations

import functools
import re
from typing import Any, cast

import pytest
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from distributed.abort import Fence
from distributed.process_group import join
from parallelism.tensor_parallel import IncompletePlanError, apply_tensor_parallel, refuse_plain_parameters
from tests.parallelism.gpt_runs import RANKS_TIMEOUT_SECONDS, Outcome, Run, alone, assert_same, build, on_ranks
from tests.ranks import run_ranks
from training.link import World
from training.models.gpt.limits import tensor_degrees, why_not_cut
from training.models.gpt.shard import CannotCutError, shard
from training.workload import GptModel

FP32, BF16 = 1e-5, 3e-2
ON_TWO = [
    Run("tied", tensor=2),
    Run("untied, dropout", tensor=2, model={"tied_embeddings": False, "dropout": 0.2}),
    Run("checkpointed, dropout", tensor=2, model={"dropout": 0.2}, checkpointing=True),
    Run("frozen", tensor=2, frozen=("embedding.weight", "blocks.0.attention_norm.weight", "blocks.1.attention.query.weight")),
    Run("bf16", tensor=2, precision="bf16"),
]
ON_FOUR = [
    Run("four", tensor=4, model={"dropout": 0.2}),
    Run("sharded", shard=2, tensor=2, model={"dropout": 0.2}),
    Run("sharded, untied, checkpointed", shard=2, tensor=2, model={"tied_embeddings": False}, checkpointing=True),
]


@functools.cache
def outcomes(world_size: int) -> dict[str, list[Outcome]]:
    """By name of the run, of each rank: all runs of one size in one world, since starting one takes long."""
    runs = ON_TWO if world_size == 2 else ON_FOUR
    ranks = run_ranks(on_ranks, world_size, runs, timeout=RANKS_TIMEOUT_SECONDS)
    return {run.name: [rank[number] for rank in ranks] for number, run in enumerate(runs)}


@pytest.mark.parametrize("run", [*ON_TWO, *ON_FOUR], ids=lambda run: run.name)
def test_as_one_process(run: Run) -> None:
    ranks = outcomes(run.shard * run.tensor)[run.name]
    assert_same(ranks, alone(run), FP32 if run.precision == "fp32" else BF16)
    assert all(rank.losses == ranks[0].losses and rank.norms == ranks[0].norms for rank in ranks)


def test_frozen_parameters_stay_as_they_were() -> None:
    (run,) = (each for each in ON_TWO if each.frozen)
    before = dict(build(run).named_parameters())
    for rank in outcomes(2)[run.name]:
        for name in run.frozen:
            assert (rank.parameters[name] == before[name].detach().numpy()).all()


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 4)
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.embedding.weight


def tied_apart(world: World) -> str:
    group = join(world, Fence())
    plan = {"embedding": ColwiseParallel(), "head": ColwiseParallel()}
    with pytest.raises(IncompletePlanError) as refusal:
        apply_tensor_parallel(Tied(), init_device_mesh("cpu", (2,)), plan)
    group.close()
    return str(refusal.value)


def test_a_tied_parameter_must_be_cut_alike_under_all_its_names() -> None:
    for message in run_ranks(tied_apart, 2):
        assert "embedding.weight and head.weight are one parameter" in message


def test_a_trained_parameter_outside_the_plan_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(IncompletePlanError, match=r"0\.weight is trained, but the plan does not say how it is cut"):
        refuse_plain_parameters(model)
    refuse_plain_parameters(model.requires_grad_(False))


def test_a_plan_names_modules_that_are_there() -> None:
    with pytest.raises(IncompletePlanError, match="no haed"):
        apply_tensor_parallel(nn.Linear(2, 2), cast(DeviceMesh, None), {"haed": RowwiseParallel()})


@pytest.mark.parametrize(
    ("model", "degrees", "reason"),
    [
        ({"heads": 6, "dim": 48}, {"tensor": 4}, r"heads=6 does not divide by tensor=4; .* tensor=1 or 2"),
        ({"vocab_size": 257}, {"tensor": 2}, r"vocab_size=257 does not divide by tensor=2; .* tensor=1$"),
        ({"context": 129}, {"tensor": 2}, r"129 tokens does not divide by tensor=2; use 128 or 130"),
        ({"context": 100}, {"tensor": 2, "context": 4}, r"100 tokens does not divide by tensor=2 x 2 chunks x context=4; use 96 or 112"),
        ({"context": 8}, {"context": 8}, r"8 tokens does not divide by tensor=1 x 2 chunks x context=8; use 16 tokens"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(model: dict[str, Any], degrees: dict[str, int], reason: str) -> None:
    assert re.search(reason, why_not_cut(GptModel(**model), **degrees) or "")


def test_sizes_that_divide_are_not() -> None:
    assert why_not_cut(GptModel(), tensor=4, context=4) is None
    assert why_not_cut(GptModel(context=129)) is None
    assert tensor_degrees(GptModel(heads=12, dim=768)) == [1, 2, 4]


class OfThree:
    """As much of a mesh as a refusal looks at."""

    def size(self) -> int:
        return 3


def test_ranks_refuse_what_the_plan_would() -> None:
    with pytest.raises(CannotCutError, match="heads=4 does not divide by tensor=3"):
        shard(build(Run("three")), tensor=cast(DeviceMesh, OfThree()))
