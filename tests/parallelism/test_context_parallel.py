"""A GPT whose sequences are cut over the context axis trains as one process does."""

from __future__ import annotations

import functools

import pytest
import torch

from distributed.abort import Fence
from distributed.process_group import join
from parallelism.context_parallel import GatherOverRanks
from tests.parallelism.gpt_runs import RANKS_TIMEOUT_SECONDS, Outcome, Run, alone, assert_same, on_ranks
from tests.ranks import run_ranks
from training.link import World

FP32, BF16 = 1e-5, 3e-2
ON_TWO = [
    Run("tied", context=2),
    Run("untied, dropout", context=2, model={"tied_embeddings": False, "dropout": 0.2}),
    Run("checkpointed", context=2, model={"dropout": 0.2}, checkpointing=True),
    Run("bf16", context=2, precision="bf16"),
]
ON_FOUR = [
    Run("four", context=4),
    Run("with tensor", context=2, tensor=2, model={"dropout": 0.2}),
    Run("sharded", shard=2, context=2, model={"dropout": 0.2}),
]


@functools.cache
def outcomes(world_size: int) -> dict[str, list[Outcome]]:
    runs = ON_TWO if world_size == 2 else ON_FOUR
    ranks = run_ranks(on_ranks, world_size, runs, timeout=RANKS_TIMEOUT_SECONDS)
    return {run.name: [rank[number] for rank in ranks] for number, run in enumerate(runs)}


@pytest.mark.parametrize("run", [*ON_TWO, *ON_FOUR], ids=lambda run: run.name)
def test_as_one_process(run: Run) -> None:
    ranks = outcomes(run.shard * run.context * run.tensor)[run.name]
    assert_same(ranks, alone(run), FP32 if run.precision == "fp32" else BF16)
    assert all(rank.losses == ranks[0].losses and rank.norms == ranks[0].norms for rank in ranks)


def gathered(world: World) -> tuple[list[float], list[float]]:
    """Of (3, 2) values that lie row by row on rank 0 and column by column on rank 1; the gradient the other way round."""
    group = join(world, Fence())
    handle = group.process_group()
    assert handle is not None
    values = torch.arange(6.0).view(3, 2) + 10 * world.rank
    own = (values if world.rank == 0 else values.t().contiguous().t()).requires_grad_()
    whole = GatherOverRanks.apply(own, handle)  # type: ignore[no-untyped-call]
    weights = torch.arange(12.0).view(2, 3, 2)
    whole.backward(weights if world.rank == 1 else weights.transpose(1, 2).contiguous().transpose(1, 2))
    assert own.grad is not None
    result = whole.flatten().tolist(), own.grad.flatten().tolist()
    del whole
    group.close()
    return result


def test_what_is_gathered_is_in_the_order_of_ranks_however_it_lies_in_memory() -> None:
    for rank, (values, gradient) in enumerate(run_ranks(gathered, 2)):
        assert values == [0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15]
        assert gradient == [2.0 * (6 * rank + number) for number in range(6)]
