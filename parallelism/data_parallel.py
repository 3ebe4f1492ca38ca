"""Data parallelism: every rank holds the model and computes its micro-batches, and gradients are summed bucket by bucket.

This is torch's DistributedDataParallel with a communication hook of our own. The hook adds without dividing, because losses are already
scaled to the global batch, so that ranks may have different numbers of micro-batches. It also notes when the last bucket was handed over,
which separates exposed communication from backward; where none is, the loss has computed past the forward pass, and is refused. torch reads
the annotations of the hook, so annotations are not postponed in this file.

`Prepared` and `Wrapped` are the protocols of all wrapped models; `apply.parallelize` chooses the class.
"""

import contextlib
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # documented, and not in its __all__
from torch.nn.parallel import DistributedDataParallel

from paceline.distributed.axis_groups import WaitTimer
from paceline.distributed.process_group import Group
from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.communication.reducers import Reducer
from paceline.parallelism.own_gradients import GradientObserver, show_gradients
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.running_statistics import saved_buffers
from paceline.parallelism.tree import TreeNode

#: By subtree of micro-batches: the sums over them of all gradients, followed by those of all changes to buffers.
Sums = dict[TreeNode, list[Tensor]]
Tensors = tuple[Tensor, ...]
#: Maps a batch to what a rank trains on: its shard of each sequence, or all of it.
LocalBatch = Callable[[Tensors], Tensors]


class Prepared(Protocol):
    """A model that is ready to be trained in its world, seen from one rank. Every rank makes the same calls."""

    has_collective_forward: bool  # every rank takes part in every forward and backward pass, since each holds a shard of the parameters
    observe_gradient: GradientObserver | None  # is shown this rank's own gradients in each step, before `finish_step` makes them global

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        """Begin a step in which this rank computes the micro-batches of `assignment`.

        `sums` may already hold sums of gradients of this rank's micro-batches; those that the rank computes are added to it.
        """
        ...

    def finish_step(self) -> float:
        """Make gradients global, right after the last backward. Collective.

        Returns the seconds that this rank only waited for other ranks, in here or since the last bucket was handed over. On a GPU they are known later
        (`WaitClock.settle`).
        """
        ...

    def sync_buffers(self) -> None:
        """Make running statistics equal on every rank, before they are read or saved. Collective."""
        ...


class Wrapped(Prepared, Protocol):
    """A `Prepared` model that is called micro-batch by micro-batch."""

    module: nn.Module  # call this one to train

    def local_batch(self, batch: Tensors) -> Tensors:
        """Return what this rank trains on of a micro-batch: all of it, or its shard of every sequence."""
        ...

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        """Return the context around forward and backward of micro-batch `index`. `final`: it is this rank's last one of the step."""
        ...

    def waited(self) -> float:
        """Return the seconds that this rank only waited for others within forward and backward, since the last call of `waited`."""
        ...

    def release_memory(self) -> None:
        """Free memory that is kept from one step to the next and that the next step can allocate again."""
        ...

    def exchange_buffer_bytes(self, passes: int) -> int:
        """Return the bytes of exchange buffers that are kept between steps, beside the gradients, for `passes` passes in a step."""
        ...


class WholeModel:
    """The parts of `Wrapped` that are equal wherever every rank holds the whole model."""

    has_collective_forward = False
    observe_gradient: GradientObserver | None = None

    def local_batch(self, batch: Tensors) -> Tensors:
        return batch

    def waited(self) -> float:
        return 0.0

    def release_memory(self) -> None:
        """Do nothing: no memory is kept that could be allocated again."""

    def exchange_buffer_bytes(self, passes: int) -> int:
        return 0


class SingleProcess(WholeModel):
    """A model on one rank, for which nothing has to be exchanged."""

    def __init__(self, model: nn.Module) -> None:
        self.module = model

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        """Do nothing: backward adds gradients up where they are."""

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def finish_step(self) -> float:
        show_gradients(self.observe_gradient, self.module.parameters())
        return 0.0

    def sync_buffers(self) -> None:
        """Do nothing: no other rank has buffers."""


class AxisParallelModel:
    """The parts of `Wrapped` that are equal wherever ranks communicate within forward and backward, in the axis groups of the mesh.

    Gradients are added up in place, so that nothing of a step that is interrupted can be kept.
    """

    observe_gradient: GradientObserver | None = None

    def __init__(self, model: nn.Module, group: Group, local_batch: LocalBatch | None) -> None:
        self.group, self._model, self._local_batch = group, model, local_batch
        self._waiting = WaitTimer(group.axis_groups.values())

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        self.waited()  # drop the seconds that evaluation and clipping have waited

    def local_batch(self, batch: Tensors) -> Tensors:
        return batch if self._local_batch is None else self._local_batch(batch)

    def waited(self) -> float:
        return self._waiting.lap()

    def sync_buffers(self) -> None:
        average_buffers(self._model, self.group)

    def release_memory(self) -> None:
        """Do nothing: no memory is kept that could be allocated again."""

    def exchange_buffer_bytes(self, passes: int) -> int:
        return 0


class ForwardBypassedError(RuntimeError):
    """The loss has computed gradients without the forward pass of the model that it was given, so that nothing has summed them."""


class ReplicatedModel(DistributedDataParallel):
    """torch's wrapper, with the attributes of the wrapped model, which a loss may read."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class Replicated(AxisParallelModel):
    """A model with equal parameters on every rank, over torch's DistributedDataParallel.

    Ranks along a context axis hold equal parameters too; they communicate in every pass.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        group: Group,
        local_batch: LocalBatch | None,
        reducer: Reducer,
        options: CommunicationOptions = CommunicationOptions(),
    ) -> None:
        super().__init__(model, group, local_batch)
        self.has_collective_forward = local_batch is not None
        self._device_ids = [device] if device.type == "cuda" else None
        self._asks_static = options.static_graph
        self.reducer = reducer
        self.last_bucket = group.exposure.mark()
        self.awaits_buckets = False  # of the step's last backward, which hands them over
        self._wrap(static=False)

    def _wrap(self, *, static: bool) -> None:
        self._static, self._bucket_mb, self._trained = static, self.reducer.bucket_mb, self._what_is_trained()
        # Buffers are averaged where they matter (`average_buffers`), not sent out by rank 0 before each forward.
        self._ddp = ReplicatedModel(
            self._model,
            device_ids=self._device_ids,
            init_sync=False,  # rank 0 may not have the state yet
            forward_sync_buffers=False,
            gradient_as_bucket_view=True,
            bucket_cap_mb=self._bucket_mb,
            find_unused_parameters=self._asks_static and not static,
            static_graph=static,
        )
        # Weak: torch would keep this model, and by it the group, in a cycle that no collector sees.
        self._ddp.register_comm_hook(weakref.ref(self), reduce_bucket)
        self.module: nn.Module = self._ddp

    def _wrap_anew(self, *, static: bool) -> None:
        del self.module, self._ddp  # with its hooks on the parameters
        self._wrap(static=static)

    def begin_step(self, assignment: MicroBatchAssignment, sums: Sums) -> None:
        super().begin_step(assignment, sums)
        static = self._asks_static and assignment.max_per_rank == 1
        # DDP knows the parameters that could be trained when it was made: those that a loop unfreezes later it would not sum.
        if (static, self.reducer.bucket_mb, self._what_is_trained()) != (self._static, self._bucket_mb, self._trained):
            self._wrap_anew(static=static)

    def _what_is_trained(self) -> tuple[bool, ...]:
        return tuple(parameter.requires_grad for parameter in self._model.parameters())

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        self.awaits_buckets = final
        if final:
            return contextlib.nullcontext()
        if self._static:  # where it is, DDP aborts in a pass that only accumulates (pytorch issue 187732)
            self._wrap_anew(static=False)
        return self._ddp.no_sync()

    def exchange_buffer_bytes(self, passes: int) -> int:
        """Return the bytes of DDP's buckets, or 0 for a single pass, which moves its gradients into them one by one."""
        return sum(each.nbytes for each in self._ddp.parameters() if each.requires_grad) if passes > 1 else 0

    def finish_step(self) -> float:
        if self.awaits_buckets:
            raise ForwardBypassedError(
                "the loss computes gradients without a call of the model that it is given, as by one of its methods or its `module`, and they are not "
                "summed over the ranks; call it as model(...), or leave out `reproducible: false` and `communication`"
            )
        return self.group.exposure.since(self.last_bucket)


def reduce_bucket(state: weakref.ref[Replicated], bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """Sum a bucket over the replicas: the communication hook of DistributedDataParallel."""
    replicated = state()
    assert replicated is not None  # it holds the wrapper whose backward pass this is
    if replicated.observe_gradient:
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            assert isinstance(parameter, nn.Parameter)
            replicated.observe_gradient(parameter, gradient)
    replicated.last_bucket, replicated.awaits_buckets = replicated.group.exposure.mark(), False
    return replicated.reducer.start(bucket)


@torch.no_grad()
def average_buffers(model: nn.Module, group: Group) -> None:
    """Replace running statistics by their mean over all ranks. The mean of moving averages does not depend on when it is taken.
    Collective.
    """
    for buffer in saved_buffers(model):
        if group.world_size > 1 and buffer.is_floating_point():
            sum_ = buffer.double()  # a mask may be filled with the least number of its type
            group.sum(sum_).wait()
            buffer.copy_(sum_.div_(group.world_size))
