"""How gradients are summed over replicas: by the backend, bucket by bucket or in one message, or by a `Reduction` that sends less.

A reducer belongs to one generation. What a reduction has to remember outlives it (`TrainState.unsent`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # documented, and not in its __all__

from paceline.distributed.process_group import Group
from paceline.distributed.reduction import GradientBucket, Reduction, ReductionState
from paceline.parallelism.communication.pieces import PieceMaker
from paceline.parallelism.gradients import SUMMED_AXES, all_reduce_flat, gradients_of, sum_gradients
from paceline.parallelism.mesh import local_tensor


class Reducer(Protocol):
    """Sums the gradients of one generation over its replicas."""

    @property
    def bucket_mb(self) -> float | None:
        """MiB of the buckets that are to be given to `start`; None: torch's default."""
        ...

    def start(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Start to sum one of DDP's buckets. Collective, in the same order on every rank."""
        ...

    def sum(self, parameters: Iterable[nn.Parameter]) -> None:
        """Sum all gradients of a sharded model over the replicas and the context ranks, in place. Collective."""
        ...

    def commit(self) -> None:
        """The update with these sums is applied."""
        ...

    def state(self) -> ReductionState:
        """Return what is to be remembered beyond this generation."""
        ...

    def load_state(self, state: ReductionState) -> None:
        """Go on from what an earlier generation has remembered."""
        ...


class BackendReducer:
    """Sums by the backend's all-reduce; nothing is left out."""

    def __init__(self, group: Group, bucket_mb: float | None = None) -> None:
        self._group, self.bucket_mb = group, bucket_mb
        # Context ranks beside replicas are summed together with them and counted as theirs.
        self._axis = next(iter(group.axis_groups), "replicate")
        self._state: ReductionState = {}

    def start(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        return self._group.sum(bucket.buffer(), along=self._axis, overlaps=not bucket.is_last())

    def sum(self, parameters: Iterable[nn.Parameter]) -> None:
        sum_gradients(parameters, self._group.axis_groups)

    def commit(self) -> None:
        """Do nothing: nothing is left out."""

    def state(self) -> ReductionState:
        return self._state

    def load_state(self, state: ReductionState) -> None:
        """Keep what compressed sums have left out for a generation that has several ranks again."""
        self._state = state


class BackgroundReducer:
    """Sums by a `Reduction`, in its thread: DDP's buckets behind backward, a sharded model's gradients as one bucket after it."""

    def __init__(
        self,
        group: Group,
        reduction: Reduction,
        pieces: Callable[[], PieceMaker],
        step: Callable[[], int],
        bucket_mb: float | None = None,
    ) -> None:
        """`pieces`: makes pieces of the model as it is once it is ready for its world. `step`: returns the number of the step under way, from 1."""
        self._group, self._reduction, self._make_pieces, self._step, self.bucket_mb = group, reduction, pieces, step, bucket_mb

    @cached_property
    def _pieces(self) -> PieceMaker:
        return self._make_pieces()

    def start(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        made = GradientBucket(bucket.buffer(), self._pieces.pieces(bucket.parameters()), self._step())
        return self._group.start_reduction(self._reduction, made, overlaps=not bucket.is_last())

    @torch.no_grad()
    def sum(self, parameters: Iterable[nn.Parameter]) -> None:
        trained = [parameter for parameter in parameters if parameter.grad is not None]
        parts = [local_tensor(gradient) for gradient in gradients_of(trained)]
        for axis in SUMMED_AXES:
            if axis in self._group.axis_groups and axis != "replicate":
                all_reduce_flat(self._group.axis_groups[axis], parts)
        flat = torch.cat([part.reshape(-1) for part in parts])
        self._group.start_reduction(self._reduction, GradientBucket(flat, self._pieces.pieces(trained), self._step())).wait()
        for part, piece in zip(parts, torch.split(flat, [part.numel() for part in parts]), strict=True):
            part.copy_(piece.view(part.shape))

    def commit(self) -> None:
        self._reduction.commit()

    def state(self) -> ReductionState:
        return self._reduction.state()

    def load_state(self, state: ReductionState) -> None:
        """Go on from `state`, but for parts of parameters that this rank does not hold: those of other shards."""
        held = self._pieces.names
        own = {kind: {name: part for name, part in of_kind.items() if name in held} for kind, of_kind in state.items()}
        self._reduction.load_state(own)
