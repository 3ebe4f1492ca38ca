"""Data parallelism: every rank holds the model and computes its micro-batches, and gradients are summed bucket by bucket.

This is torch's DistributedDataParallel with a communication hook of our own. The hook adds without dividing, because losses are already
scaled to the global batch, so that ranks may have different numbers of micro-batches. It also notes when the last bucket was handed over,
which separates exposed communication from backward; where none is, the loss has computed past the forward pass, and is refused. torch reads
the annotations of the hook, so annotations are not postponed in this file.
"""

import contextlib
import weakref
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # documented, and not in its __all__
from torch.nn.parallel import DistributedDataParallel

from paceline.distributed.process_group import Group
from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.communication.reducers import Reducer
from paceline.parallelism.plan import MicroBatchAssignment
from paceline.parallelism.wrapped import AxisParallelModel, LocalBatch, Sums


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
