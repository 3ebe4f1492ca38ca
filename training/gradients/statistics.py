"""The statistics of one tensor: its norm, its zeros, what is not finite, and a histogram over powers of ten."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MIN_EXPONENT, MAX_EXPONENT = -12, 3
CHUNK = 2**24  # elements that are looked at together: bounds what is copied of a large tensor


@dataclass(frozen=True)
class TensorStatistics:
    """Numbers of one tensor.

    `norm`: the L2 norm of all elements: NaN or infinite where one of them is. `zeros`, `nans`, `infs`: how many elements are exactly 0, NaN, or one of
    the infinities. `histogram`: how many of the others lie in each bin of `histogram_edges`; with them it adds up to `elements`.
    """

    elements: int
    norm: float
    zeros: int
    nans: int
    infs: int
    histogram: tuple[int, ...]

    @property
    def zero_share(self) -> float:
        """Share of elements that are exactly 0; 0 for a tensor without elements."""
        return self.zeros / self.elements if self.elements else 0.0


@dataclass(frozen=True)
class PendingStatistics:
    """Statistics that are still on the tensor's device, where the CPU need not wait for them."""

    elements: int
    norm: Tensor
    counts: Tensor  # by bin, and then zeros, NaN, infinities

    def read(self) -> TensorStatistics:
        """Return the numbers, once the device has computed them."""
        *histogram, zeros, nans, infs = self.counts.tolist()
        return TensorStatistics(self.elements, float(self.norm), zeros, nans, infs, tuple(histogram))


def histogram_edges(bins: int) -> tuple[float, ...]:
    """Return the `bins` + 1 edges of the histogram, the same for every tensor, so that histograms can be added over ranks, steps and parameters.

    Half of the bins are for negative numbers and mirror the others. Of those the first begins at 0 and ends at 1e-12, the last begins at 1e3 and has no
    end, and the ones between are equally wide in the logarithm: half a decade for 64 bins. Edges are numbers of float32. A bin has its lower edge.
    """
    inner = bins // 2 - 2
    exponents = [MIN_EXPONENT + (MAX_EXPONENT - MIN_EXPONENT) * place / inner for place in range(inner + 1)]
    above = [*torch.tensor([10.0**exponent for exponent in exponents], dtype=torch.float32, device="cpu").tolist(), math.inf]
    return (*(-edge for edge in reversed(above)), 0.0, *above)


@torch.no_grad()
def measure(values: Tensor, edges: Tensor) -> PendingStatistics:
    """Compute the statistics of a dense tensor on its own device, without waiting for it. Both parts of complex numbers count as elements.

    `edges`: those of `histogram_edges`, on the same device. Squares are of numbers that were divided by the largest, and are added in float64: the norm
    of numbers whose squares overflow float32 is right.
    """
    values = torch.view_as_real(values.detach()) if values.is_complex() else values.detach()
    chunks = torch.split(values.reshape(-1), CHUNK) if values.numel() else ()
    counts = torch.zeros(edges.numel() + 2, dtype=torch.int64, device=values.device)
    squares = torch.zeros((), dtype=torch.float64, device=values.device)
    peaks = [_widened(chunk).abs().amax() for chunk in chunks]
    peak = torch.stack(peaks).amax() if peaks else torch.ones((), device=values.device)
    scale = torch.where(torch.isfinite(peak) & (peak > 0), peak, torch.ones_like(peak))
    for chunk in map(_widened, chunks):
        counts += _counts(chunk, edges.to(chunk.dtype))
        squares += (chunk / scale).square_().sum(dtype=torch.float64)
    return PendingStatistics(values.numel(), squares.sqrt() * scale, counts)


def _widened(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()


def _counts(values: Tensor, edges: Tensor) -> Tensor:
    bins = edges.numel() - 1
    places = torch.bucketize(values, edges[1:-1], right=True)  # the last of them is of NaN too
    places.masked_fill_(values == 0, bins)
    places.masked_fill_(values.isnan(), bins + 1)
    places.masked_fill_(values.isinf(), bins + 2)
    return torch.zeros(bins + 3, dtype=torch.int64, device=values.device).scatter_add_(0, places, torch.ones_like(places))
