"""The largest elements of a tensor, by their absolute values: exactly, or above a threshold that a sample tells (Lin et al. 2018)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from paceline.distributed.compression.options import Threshold

#: Elements of a sample. The threshold of the largest 1 % then has about 650 of them above it, and is off by some 4 %.
SAMPLE = 1 << 16
#: A sampled threshold may let this many times as many elements through; beyond that, the largest of them are taken.
MOST = 2


def count_of(ratio: float, elements: int) -> int:
    """Return the number of elements that are sent of so many: at least one."""
    return min(elements, max(1, math.ceil(ratio * elements)))


def largest(values: Tensor, ratio: float, threshold: Threshold, turn: int) -> Tensor:
    """Return the indices, int64, of about `ratio` of the elements of `values` (n, fp32, finite), the largest ones.

    `exact`: as many as `count_of` says. `sampled`: those above a threshold from a sample, at most MOST times as many, and at least one. `turn`: another
    number each time draws another sample.
    """
    wanted = count_of(ratio, values.numel())
    if wanted == values.numel():
        return torch.arange(wanted)
    magnitudes = values.abs()
    if threshold == "exact" or values.numel() <= SAMPLE:
        return magnitudes.topk(wanted, sorted=False).indices
    stride = values.numel() // SAMPLE
    sample = magnitudes[turn % stride :: stride]
    least = sample.topk(count_of(ratio, sample.numel()), sorted=False).values.min()
    found = (magnitudes >= least).nonzero().view(-1)
    if found.numel() > MOST * wanted:
        return found[magnitudes[found].topk(MOST * wanted, sorted=False).indices]
    return found if found.numel() else magnitudes.argmax().view(1)
