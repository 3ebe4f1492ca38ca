"""Keys and values gathered over the context axis. That models over it train as one process does: `test_parity.py`."""

from __future__ import annotations

import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism.mesh import axis_group_ranks
from paceline.parallelism.plan import Degrees
from paceline.parallelism.tensor_context.context_parallel import AllGather
from paceline.training.link import RankPlace
from tests.ranks import run_ranks


def gathered(world: RankPlace) -> tuple[list[float], list[float]]:
    """Gather (3, 2) values that are row-major on rank 0 and column-major on rank 1; for the gradient it is the opposite."""
    group = join(world, GroupAborter(), axis_group_ranks(Degrees(context=2)))
    values = torch.arange(6.0).view(3, 2) + 10 * world.rank
    own = (values if world.rank == 0 else values.t().contiguous().t()).requires_grad_()
    whole = AllGather.apply(own, group.axis_groups["context"])  # type: ignore[no-untyped-call]
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
