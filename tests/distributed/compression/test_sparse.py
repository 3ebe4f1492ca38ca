from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from paceline.distributed.compression.options import Threshold
from paceline.distributed.compression.sparse import CHUNK, MOST, SAMPLE, count_of, largest

LENGTHS = (1, 2, 50, SAMPLE, SAMPLE + 1, 3 * CHUNK + 7)
RATIOS = (0.001, 0.01, 0.3, 1.0)


def numbers(length: int) -> Tensor:
    return torch.randn(length, generator=torch.Generator().manual_seed(length))


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["all different", "many equal", "all zero"])
def test_exactly_as_many_are_found_as_are_wanted_and_no_other_one_is_larger(kind: str, length: int, ratio: float) -> None:
    values = numbers(length) * {"all different": 1.0, "many equal": 2.0, "all zero": 0.0}[kind]
    values = values.round() if kind == "many equal" else values
    found = largest(values, ratio, "exact", 1)
    assert found.unique().numel() == found.numel() == count_of(ratio, length)
    best = values.abs().topk(found.numel()).values
    assert torch.equal(values[found].abs().sort(descending=True).values, best)


@pytest.mark.parametrize("ratio", RATIOS[:3])
def test_a_sampled_threshold_finds_about_as_many_and_all_that_are_above_it(ratio: float) -> None:
    values = numbers(1_000_003)
    found = largest(values, ratio, "sampled", 3)
    wanted = count_of(ratio, values.numel())
    assert 0.7 * wanted < found.numel() < 1.3 * wanted
    least = values[found].abs().min()
    assert torch.equal(found, (values.abs() >= least).nonzero().view(-1))


@pytest.mark.parametrize("turn", [1, 2])
def test_where_a_sample_misses_what_is_large_no_more_than_the_largest_are_found(turn: int) -> None:
    values = numbers(20 * SAMPLE)
    sampled = torch.arange(turn % 20, values.numel(), 20)
    values.index_fill_(0, sampled, 0.0)
    found = largest(values, 0.01, "sampled", turn)
    assert found.numel() == MOST * count_of(0.01, values.numel())
    assert torch.equal(values[found].abs().sort(descending=True).values, values.abs().topk(found.numel()).values)


@pytest.mark.parametrize("threshold", ["exact", "sampled"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("length", LENGTHS)
def test_what_is_not_finite_is_among_the_largest(length: int, value: float, threshold: Threshold) -> None:
    for place in {0, length // 2, length - 1}:  # in a sample or not
        values = numbers(length)
        values[place] = value
        for ratio in RATIOS:
            assert place in largest(values, ratio, threshold, 1)
