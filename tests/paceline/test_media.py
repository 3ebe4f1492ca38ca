"""Histograms and tables, as a script makes them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from paceline.media import Histogram, Table
from paceline.monitoring.media import MAX_ROWS, unpack


def test_counts_are_those_of_numpy_and_values_that_are_not_finite_are_counted_apart() -> None:
    values = np.random.default_rng(0).normal(size=1000)
    found = Histogram(np.append(values, [math.nan, math.inf, -math.inf, math.nan]), bins=16).stored
    counts, edges = np.histogram(values, 16)
    assert found.counts == tuple(counts)
    assert np.allclose(found.edges, edges)
    assert (found.values, found.nans, found.infs) == (1004, 2, 2)
    assert found.mean == pytest.approx(values.mean())
    assert found.std == pytest.approx(values.std())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.bool])
def test_tensors_of_any_type_and_with_a_gradient_are_read(dtype: torch.dtype) -> None:
    tensor = torch.ones(2, 3).to(dtype)
    assert sum(Histogram(tensor).stored.counts) == 6
    assert sum(Histogram(torch.zeros(4, requires_grad=True)).stored.counts) == 4


@pytest.mark.parametrize(
    "values",
    [[5, 5, 5], [0.0], [1e308, -1e308], [5e-324, 0.0], [1.0, 1.0 + 2e-16], [1e17, 1e17 + 16], [-1e308, -1e308], [2**62, 2**62 + 1]],
)
def test_every_value_is_in_a_bin_whatever_its_size(values: list[float]) -> None:
    found = Histogram(values, bins=512).stored
    assert sum(found.counts) == len(values)
    assert list(found.edges) == sorted(found.edges)
    assert all(map(math.isfinite, found.edges))


def test_nothing_but_nan_is_a_histogram_without_bins() -> None:
    found = unpack(Histogram([math.nan] * 3).content(), "histogram").document.histogram
    assert found is not None
    assert (found.counts, found.nans, found.mean) == ((), 3, None)


def test_counts_that_the_caller_has_made_are_taken() -> None:
    found = Histogram(np_histogram=np.histogram([1, 2, 2, 3], bins=3)).stored
    assert found.counts == (1, 2, 1)
    assert found.mean == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"values": []}, ValueError, "there are no values"),
        ({"values": ["a"]}, TypeError, "not real numbers"),
        ({"values": [1j]}, TypeError, "not real numbers"),
        ({"values": [[1], [1, 2]]}, TypeError, "cannot be read as an array"),
        ({"values": [1], "bins": 0}, ValueError, "bins=0 is not between 1 and 512"),
        ({"values": [1], "bins": 2.5}, TypeError, "no whole number"),
        ({}, TypeError, "one of them"),
        ({"np_histogram": ([1, 2], [0, 1])}, ValueError, "one edge more than counts"),
        ({"np_histogram": ([1], [1, 0])}, ValueError, "none below the one before"),
        ({"np_histogram": ([0.5], [0, 1])}, ValueError, "whole numbers"),
        ({"np_histogram": 7}, TypeError, "as numpy.histogram returns them"),
    ],
)
def test_a_wrong_histogram_is_refused_in_the_line_of_its_caller(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Histogram(**arguments)


def test_cells_are_kept_by_their_types() -> None:
    table = Table(["a", "b"], [[1, 0.5], [True, None], [np.float32(0.25), torch.tensor(3)], [math.nan, "é\ud800\0"], [10**20, [1, 2]]])
    found = unpack(table.content(), "table").document.table
    assert found is not None
    assert found.rows == ((1, 0.5), (True, None), (0.25, 3), ("NaN", "é??"), (str(10**20), "[1, 2]"))


def test_of_a_long_table_the_first_rows_are_kept() -> None:
    table = Table(["n"], ([number] for number in range(MAX_ROWS + 5)))
    assert (table.count, len(table.rows), table.rows[-1]) == (MAX_ROWS + 5, MAX_ROWS, (MAX_ROWS - 1,))


def test_a_table_can_be_filled_row_by_row_and_copied() -> None:
    table = Table(columns=["a", "b"])
    table.add_data(1, 2)
    copy = table.copy()
    table.add_data(3, 4)
    assert (copy.rows, table.rows) == ([(1, 2)], [(1, 2), (3, 4)])


class Frame:
    """A data frame, as far as a table reads it."""

    columns = ("x", 1)

    def itertuples(self, index: bool = True, name: str | None = "Pandas") -> Any:
        assert (index, name) == (False, None)
        return iter([(1.5, "a")])


@pytest.mark.parametrize("arguments", [{"columns": Frame()}, {"data": Frame()}, {"dataframe": Frame()}])
def test_a_data_frame_is_a_table(arguments: dict[str, Any]) -> None:
    table = Table(**arguments)
    assert (table.columns, table.rows) == (["x", "1"], [(1.5, "a")])


@pytest.mark.parametrize(
    ("columns", "rows", "error", "words"),
    [
        ("ab", [], TypeError, "no list of names"),
        ([], [], TypeError, "no list of names"),
        (["a"], [[1], [1, 2]], ValueError, "row 1 has 2 cells, and there are 1 column"),
        (["a"], ["x"], TypeError, "no row of cells"),
        (["a"], [5], TypeError, "no row of cells"),
        ([str(number) for number in range(201)], [], ValueError, "201 columns; the limit is 200"),
    ],
)
def test_a_wrong_table_is_refused(columns: Any, rows: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Table(columns, rows)
