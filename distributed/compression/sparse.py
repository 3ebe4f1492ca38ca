"""The largest elements of a tensor, by their absolute values: exactly, or above a threshold that a sample tells (Lin et al. 2018)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from paceline.distributed.compression.options import Threshold

#: Elements of a sample. The threshold of the largest 1 % then has about 650 of them above it, and is off by some 4 %.
SAMPLE = 1 << 16
#: Elements that are compared at once, so that they stay in a core's cache.
CHUNK = 1 << 16
#: A sampled threshold may let this many times as many elements through; beyond that, the largest of them are taken.
MOST = 2


def count_of(ratio: float, elements: int) -> int:
    """Return the number of elements that are sent of so many: at least one."""
    return min(elements, max(1, math.ceil(ratio * elements)))


def largest(values: Tensor, ratio: float, threshold: Threshold, turn: int) -> Tensor:
    """Return the indices, int64, of about `ratio` of the elements of `values` (n, fp32), the largest ones. What is not finite is among them.

    `exact`: as many as `count_of` says. `sampled`: those above a threshold from a sample, at most MOST times as many, and at least one. `turn`: another
    number each time draws another sample.
    """
    wanted = count_of(ratio, values.numel())
    if wanted == values.numel():
        return torch.arange(wanted, device=values.device)
    if threshold == "exact" or values.numel() <= SAMPLE:
        return _largest_of_all(values, wanted)
    stride = values.numel() // SAMPLE
    sample = values[turn % stride :: stride].abs()
    least = sample.topk(count_of(ratio, sample.numel()), sorted=False).values.min()
    found = _at_most(MOST * wanted, values, _not_below(values, least))
    return found if found.numel() else values.abs().argmax().view(1)


def _largest_of_all(values: Tensor, wanted: int) -> Tensor:
    magnitudes = values.abs()
    if values.device.type != "cpu":
        return magnitudes.topk(wanted, sorted=False).indices
    magnitudes.numpy().partition(-wanted)  # a tenth of the time of torch's topk
    return _at_most(wanted, values, _not_below(values, magnitudes[-wanted]))


def _not_below(values: Tensor, least: Tensor) -> Tensor:
    """Return the indices of the elements of `values` (n) whose absolute values are not below `least`; NaN is below nothing."""
    if values.device.type != "cpu":
        return (values.abs() < least).logical_not().nonzero().view(-1)
    found = []  # by numpy, which finds few elements among many in a third of torch's time
    for first, part in zip(range(0, values.numel(), CHUNK), torch.split(values, CHUNK), strict=True):
        found.append(np.flatnonzero(~(np.abs(part.numpy()) < least.numpy())) + first)
    return torch.from_numpy(np.concatenate(found))


def _at_most(count: int, values: Tensor, indices: Tensor) -> Tensor:
    """Return `indices`, or those of the `count` largest of their elements where there are more."""
    return indices if indices.numel() <= count else indices[values[indices].abs().topk(count, sorted=False).indices]
