"""Keys and values gathered over the context axis. That models cut over it train as one process does: `test_parity.py`."""

from __future__ import annotations

import torch

from distributed.abort import Fence
from distributed.process_group import join
from parallelism.cut.context_parallel import GatherOverRanks
from parallelism.mesh import lines
from parallelism.plan import Degrees
from tests.ranks import run_ranks
from training.link import World


def gathered(world: World) -> tuple[list[float], list[float]]:
    """Of (3, 2) values that lie row by row on rank 0 and column by column on rank 1; the gradient the other way round."""
    group = join(world, Fence(), lines(Degrees(context=2)))
    values = torch.arange(6.0).view(3, 2) + 10 * world.rank
    own = (values if world.rank == 0 else values.t().contiguous().t()).requires_grad_()
    whole = GatherOverRanks.apply(own, group.lines["context"])  # type: ignore[no-untyped-call]
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
