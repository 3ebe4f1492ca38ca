"""Data parallelism: every rank holds the model, computes its micro-batches, and gradients are added up bucket by bucket.

Torch's DistributedDataParallel with a hook of our own: it adds without dividing (losses are already scaled to the global
batch, so shares may be uneven) and notes when the last bucket was handed over, which tells exposed communication from backward.
Torch looks at the hook's annotations, so they are not postponed in this file.
"""

import contextlib
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from distributed.lines import Waiting
from distributed.process_group import Group
from parallelism.plan import Deal
from parallelism.tree import Node

#: Gradients, then changes to buffers, by the subtree of micro-batches that they are the sum over.
Sums = dict[Node, list[Tensor]]
Tensors = tuple[Tensor, ...]
#: What a rank trains on of a batch: its own part of each sequence, or all of it.
OwnPart = Callable[[Tensors], Tensors]


class Prepared(Protocol):
    """A model made ready for its world."""

    in_lockstep: bool  # every forward and backward pass is one of all ranks: they hold parts of its parameters

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        """`sums` may hold what is there of this rank's share already; what else it computes is added to them."""
        ...

    def finish_step(self) -> float:
        """Make gradients global, right after the last backward. Seconds spent only waiting for other ranks, here or since the last bucket
        was handed over."""
        ...

    def settle_buffers(self) -> None:
        """Make running statistics the same on every rank: before they are read or saved."""
        ...


class Wrapped(Prepared, Protocol):
    """... to be called micro-batch by micro-batch."""

    module: nn.Module  # call this one to train

    def own_part(self, batch: Tensors) -> Tensors:
        """What this rank trains on of a micro-batch."""
        ...

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        """Around forward and backward of micro-batch `index`; `final`: this rank's last one of the step."""
        ...

    def waited(self) -> float:
        """Seconds spent only waiting for other ranks within forward or backward, since this was asked last."""
        ...

    def let_go(self) -> None:
        """Of memory that is kept from one step to the next and that the next one can make again."""
        ...

    def kept_beside(self, passes: int) -> int:
        """Bytes that are kept from one step to the next beside the gradients of so many passes: buffers for the exchange."""
        ...


class WholeModel:
    """What is the same wherever every rank holds all of the model."""

    in_lockstep = False

    def own_part(self, batch: Tensors) -> Tensors:
        return batch

    def waited(self) -> float:
        return 0.0

    def let_go(self) -> None:
        """Nothing is kept that could be made again."""

    def kept_beside(self, passes: int) -> int:
        return 0


class Alone(WholeModel):
    def __init__(self, model: nn.Module) -> None:
        self.module = model

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        """Gradients are added up where they are."""

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def finish_step(self) -> float:
        return 0.0

    def settle_buffers(self) -> None:
        """They are nobody else's."""


class AlongLines:
    """What is the same wherever ranks meet within forward and backward: they wait for each other along the lines of the mesh, and gradients are
    added up where they are, so that nothing of a step that breaks off can be kept."""

    def __init__(self, model: nn.Module, group: Group, own_part: OwnPart | None) -> None:
        self.group, self._model, self._own_part = group, model, own_part
        self._waiting = Waiting(group.lines.values())

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        self.waited()  # forget what evaluation and clipping have waited

    def own_part(self, batch: Tensors) -> Tensors:
        return batch if self._own_part is None else self._own_part(batch)

    def waited(self) -> float:
        return self._waiting.lap()

    def settle_buffers(self) -> None:
        average_buffers(self._model, self.group)

    def let_go(self) -> None:
        """Nothing is kept that could be made again."""

    def kept_beside(self, passes: int) -> int:
        return 0


class Replicated(AlongLines):
    """On every rank: along a context axis they hold the same parameters too, and meet in every pass."""

    def __init__(self, model: nn.Module, device: torch.device, group: Group, own_part: OwnPart | None) -> None:
        super().__init__(model, group, own_part)
        self.in_lockstep = own_part is not None
        # Buffers are averaged where they matter (`average_buffers`), not sent out by rank 0 before each forward.
        self._ddp = DistributedDataParallel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            init_sync=False,  # rank 0 need not have the state yet
            forward_sync_buffers=False,
            gradient_as_bucket_view=True,
        )
        self.axis = next(iter(group.lines), "replicate")  # sequence parts beside replicas are added up with them, as theirs
        self._ddp.register_comm_hook(self, exchange)
        self.module: nn.Module = self._ddp
        self.last_bucket_at = 0.0

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return contextlib.nullcontext() if final else self._ddp.no_sync()

    def kept_beside(self, passes: int) -> int:
        """Torch's buckets: into which the last pass moves gradients, one by one, so that a single pass has none beside them."""
        return sum(each.nbytes for each in self._ddp.parameters() if each.requires_grad) if passes > 1 else 0

    def finish_step(self) -> float:
        return max(0.0, time.perf_counter() - self.last_bucket_at)


def exchange(state: Replicated, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    state.last_bucket_at = time.perf_counter()
    return state.group.sum(bucket.buffer(), along=state.axis, overlaps=not bucket.is_last())


@torch.no_grad()
def average_buffers(model: nn.Module, group: Group) -> None:
    """Replace running statistics by their mean over the ranks. An average of moving averages does not depend on when it is taken."""
    for buffer in model.buffers():
        if group.world_size > 1 and buffer.is_floating_point():
            group.sum(buffer).wait()
            buffer.div_(group.world_size)
