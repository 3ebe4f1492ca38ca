"""Looks at the gradients of this rank as backward leaves them, before they are averaged over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from paceline.monitoring.gradient_records import MAX_BINS
from paceline.parallelism.mesh import local_tensor
from paceline.training.errors import InvalidInputError
from paceline.training.gradients.names import NAMES_IN_ERRORS, matching, patterns_in_use, trainable_parameters
from paceline.training.gradients.statistics import PendingStatistics, TensorStatistics, histogram_edges, measure
from paceline.training.schema.gradients import MIN_BINS


@dataclass(frozen=True)
class GradientRecord(TensorStatistics):
    """Gradient of one parameter on this rank.

    `shape`: of what was seen. `is_local_shard`: the parameter is a DTensor, and all numbers are of the shard that this rank holds; under FSDP
    (fully_shard) torch hands over gradients only once they have been averaged. `snapshot`: a copy on the CPU, or None.
    """

    name: str
    shape: tuple[int, ...]
    is_local_shard: bool
    snapshot: Tensor | None


@dataclass(frozen=True)
class GradientReport:
    """Gradients since the last report.

    `gradients`: by the name of the parameter, in the model's order. `unused`: chosen parameters that no backward pass has reached. `edges`: of the bins of
    every histogram, `statistics.histogram_edges`.
    """

    gradients: dict[str, GradientRecord]
    unused: tuple[str, ...]
    edges: tuple[float, ...]


@dataclass(frozen=True)
class _Seen:
    pending: PendingStatistics
    shape: tuple[int, ...]
    is_local_shard: bool
    snapshot: Tensor | None


class GradientInterceptor:
    """Measures gradients as backward leaves them; `intercept_gradients` makes and ends it."""

    def __init__(self, parameters: dict[nn.Parameter, str], bins: int, snapshots: bool) -> None:
        self._parameters, self._snapshots = parameters, snapshots
        self._edges = histogram_edges(bins)
        self._edges_on: dict[torch.device, Tensor] = {}
        self._seen: dict[str, _Seen] = {}

    def take(self) -> GradientReport:
        """Return what was seen since the last call, each parameter as its last backward pass left it, and begin anew. Waits for the device.

        Call it after backward: before the optimizer's step or after it is the same.
        """
        for device in self._edges_on:
            if device.type == "cuda":  # FSDP's gradients are on a stream of their own
                torch.cuda.synchronize(device)
        seen, self._seen = self._seen, {}
        names = self._parameters.values()
        gradients = {name: self._record(name, seen[name]) for name in names if name in seen}
        return GradientReport(gradients, tuple(name for name in names if name not in seen), self._edges)

    def see(self, parameter: Tensor) -> None:
        """Measure a parameter's gradient; torch calls it once the gradient is accumulated, before it tells DDP of it."""
        assert isinstance(parameter, nn.Parameter)
        if parameter.grad is None:  # a hook of the loop's own has used it up already
            return
        gradient = local_tensor(parameter.grad.detach())
        if gradient.is_sparse:  # of nn.Embedding(sparse=True)
            gradient = gradient.to_dense()
        device = gradient.device
        if device not in self._edges_on:
            self._edges_on[device] = torch.tensor(self._edges, dtype=torch.float32, device=device)
        copy = gradient.to("cpu", copy=True) if self._snapshots else None
        pending = measure(gradient, self._edges_on[device])
        self._seen[self._parameters[parameter]] = _Seen(pending, tuple(gradient.shape), isinstance(parameter.grad, DTensor), copy)

    @staticmethod
    def _record(name: str, seen: _Seen) -> GradientRecord:
        numbers = vars(seen.pending.read())
        return GradientRecord(**numbers, name=name, shape=seen.shape, is_local_shard=seen.is_local_shard, snapshot=seen.snapshot)


@contextmanager
def intercept_gradients(
    model: nn.Module, names: Iterable[str] = ("*",), *, bins: int = 64, snapshots: bool = False
) -> Iterator[GradientInterceptor]:
    """Measure the gradients of this rank as backward leaves them, before DDP or the loop averages them over ranks.

    `names`: a pattern or several, as of fnmatch, for names of trainable parameters without what DDP and torch.compile put before them. `bins`: of the
    histograms, an even number from 8 to 1,024. `snapshots`: keep a copy of each gradient on the CPU. Yields a GradientInterceptor, whose `take()` returns a
    GradientReport. Nothing is communicated or changed; ranks may differ in what they look at. Interceptors of one model can be nested. Raises
    InvalidInputError for a pattern that no trainable parameter has, for other bins, and for models in FullyShardedDataParallel.
    """
    if bins % 2 or not MIN_BINS <= bins <= MAX_BINS:
        raise InvalidInputError(f"bins={bins!r}: use an even number from {MIN_BINS} to {MAX_BINS:,}, half of them for negative numbers")
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise InvalidInputError(
            "FullyShardedDataParallel keeps gradients in flat buffers, where parameters cannot be told apart: shard with "
            "torch.distributed.fsdp.fully_shard"
        )
    parameters = _chosen(model, (names,) if isinstance(names, str) else tuple(names))
    interceptor = GradientInterceptor(parameters, bins, snapshots)
    hooks = [
        parameter.register_post_accumulate_grad_hook(interceptor.see)  # type: ignore[no-untyped-call]
        for parameter in parameters
    ]
    try:
        yield interceptor
    finally:
        for hook in hooks:
            hook.remove()


def _chosen(model: nn.Module, patterns: tuple[str, ...]) -> dict[nn.Parameter, str]:
    used = patterns_in_use(model, patterns)
    for pattern in patterns or ("",):
        if pattern not in used:
            names = [name for name, _ in trainable_parameters(model)]
            some = ", ".join(names[:NAMES_IN_ERRORS]) or "none"
            raise InvalidInputError(f"names: no trainable parameter matches {pattern!r}; of the {len(names)} that there are: {some}")
    return matching(model, patterns)
