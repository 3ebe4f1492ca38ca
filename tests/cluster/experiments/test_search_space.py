"""Listed values and intervals, as places that a sampler can draw, and back."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paceline.cluster.experiments.search_space import ListedValues, NumberRange, SearchSpace, key
from paceline.cluster.experiments.spec import Search, Span

SEARCH = Search(
    trials=9,
    parameters={
        "optimizer.lr": Span(low=1e-4, high=1.0, scale="log"),
        "training.global_batch_size": Span(low=7.5, high=32, whole=True),
        "model.hidden": [[64], [64, 64]],
    },
)
SPACE = SearchSpace.of(SEARCH)


def test_values_come_back_from_their_places() -> None:
    values = {"optimizer.lr": 0.01, "training.global_batch_size": 8, "model.hidden": [64, 64]}
    places = SPACE.places_of(values | {"training.seed": 1})
    assert places == {"optimizer.lr": 0.01, "training.global_batch_size": 8, "model.hidden": 1}
    assert SPACE.values_at(places) == values


@pytest.mark.parametrize(
    "change",
    [{"optimizer.lr": 2.0}, {"optimizer.lr": True}, {"optimizer.lr": None}, {"model.hidden": [32]}, {"training.global_batch_size": 7}],
)
def test_values_of_another_space_have_no_place(change: dict[str, Any]) -> None:
    values = {"optimizer.lr": 0.01, "training.global_batch_size": 8, "model.hidden": [64]}
    assert SPACE.places_of(values | change) is None


def test_a_space_is_as_large_as_all_its_combinations() -> None:
    assert SPACE.size == math.inf
    small = SearchSpace({"a": NumberRange(Span(low=1.5, high=4, whole=True)), "b": ListedValues(["x", "y", "x"])})
    assert small.size == 3 * 2
    assert {small.key(values) for values in small.in_order()} == {small.key({"a": a, "b": b}) for a in (2, 3, 4) for b in "xy"}


def test_equal_numbers_are_the_same_however_they_are_written() -> None:
    assert key([1, {"b": 2, "a": 3}]) == key([1.0, {"a": 3.0, "b": 2}])
    assert key(1) != key(True)
    assert ListedValues([1, True, 1.0]).size == 2
