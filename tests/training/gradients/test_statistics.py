"""The statistics of one tensor, beside numpy's of the same numbers."""

from __future__ import annotations

import math
from dataclasses import astuple

import numpy as np
import pytest
import torch

from paceline.training.gradients import statistics as gradient_statistics
from paceline.training.gradients.statistics import TensorStatistics, histogram_edges, measure


def seen(values: torch.Tensor, bins: int = 64) -> TensorStatistics:
    return measure(values, torch.tensor(histogram_edges(bins))).read()


def expected(values: torch.Tensor, bins: int = 64) -> tuple[object, ...]:
    numbers = values.double().numpy().reshape(-1)
    finite = numbers[np.isfinite(numbers) & (numbers != 0)]
    places = np.searchsorted(np.array(histogram_edges(bins)), finite, side="right") - 1
    return (
        numbers.size,
        pytest.approx(float(np.linalg.norm(numbers)), rel=1e-6, nan_ok=True),
        int((numbers == 0).sum()),
        int(np.isnan(numbers).sum()),
        int(np.isinf(numbers).sum()),
        tuple(np.bincount(places, minlength=bins).tolist()),
    )


def over_decades(*shape: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(shape, generator=draw) * 10 ** (20 * torch.rand(shape, generator=draw) - 15)


WITH_ALL = torch.tensor([0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.0, 1e-13, -1e-13, 1e-12, 1e3, -1e3, 1e30])


@pytest.mark.parametrize(
    "values",
    [
        pytest.param(over_decades(300, 41), id="many"),
        pytest.param(over_decades(300, 41).bfloat16(), id="bf16"),
        pytest.param(over_decades(30).double(), id="fp64"),
        pytest.param(over_decades(300, 41).t()[1:], id="not row-major"),
        pytest.param(torch.zeros(7, 3), id="zeros"),
        pytest.param(torch.zeros(0, 3), id="empty"),
        pytest.param(torch.tensor(-0.25), id="one"),
        pytest.param(WITH_ALL, id="all"),
        pytest.param(torch.tensor([1.0, math.nan]), id="nan"),
        pytest.param(torch.tensor([1.0, -math.inf]), id="inf"),
        pytest.param(torch.full((1000,), 1e30), id="squares overflow"),
        pytest.param(torch.full((1000,), 1e30).bfloat16(), id="squares overflow in bf16"),
        pytest.param(torch.full((1000,), 1e-30), id="squares underflow"),
        pytest.param(torch.full((4,), 6e4).half(), id="fp16"),
    ],
)
def test_they_are_numpys(values: torch.Tensor) -> None:
    found = seen(values)
    assert astuple(found) == expected(values)
    assert sum(found.histogram) + found.zeros + found.nans + found.infs == found.elements == values.numel()


def test_large_tensors_are_looked_at_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_statistics, "CHUNK", 100)
    assert astuple(seen(over_decades(7, 43), 8)) == expected(over_decades(7, 43), 8)


def test_the_norm_of_huge_numbers_is_finite() -> None:
    assert seen(torch.full((100,), 1e30)).norm == pytest.approx(1e31)
    assert seen(torch.full((100,), 1e300, dtype=torch.float64)).norm == pytest.approx(1e301)


def test_shares_of_zeros() -> None:
    assert seen(torch.tensor([0.0, -0.0, 2.0, math.nan])).zero_share == 0.5
    assert seen(torch.zeros(0)).zero_share == 0


def test_both_parts_of_complex_numbers_count() -> None:
    found = seen(torch.tensor([3 + 4j, 0j]))
    assert (found.elements, found.norm, found.zeros) == (4, 5.0, 2)


@pytest.mark.parametrize("bins", [8, 64, 100])
def test_edges_mirror_each_other_and_leave_nothing_out(bins: int) -> None:
    edges = histogram_edges(bins)
    assert len(edges) == bins + 1
    assert list(edges) == sorted(set(edges)) == [-edge for edge in reversed(edges)]
    assert edges[bins // 2 :][:2] == (0.0, pytest.approx(1e-12))
    assert edges[-2:] == (1000.0, math.inf)


def test_64_bins_are_half_a_decade_wide() -> None:
    inner = np.array(histogram_edges(64))[33:-1]
    np.testing.assert_allclose(np.diff(np.log10(inner)), 0.5, atol=1e-6)
