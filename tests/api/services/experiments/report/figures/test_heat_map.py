from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from paceline.api.errors import ProblemError
from paceline.api.services.experiments.report.figures import heat_map
from paceline.api.services.experiments.report.figures.heat_map import HeatMapChoice
from paceline.api.services.experiments.report.quantities import MEMORY, METRIC, THROUGHPUT
from tests.api.services.experiments.report.made_up import AXES, analysis, subject

STRATEGY, RANKS, BATCH = AXES


def test_axes_are_those_with_several_values_of_configurations_that_ran() -> None:
    assert heat_map.varied(analysis()) == {STRATEGY: ["ddp", "fsdp"], RANKS: [2, 4, 8], BATCH: [32, 64]}


def test_a_cell_has_the_best_of_its_configurations() -> None:
    fastest = heat_map.cells_of(subject(), RANKS, STRATEGY, THROUGHPUT)
    leanest = heat_map.cells_of(subject(), RANKS, STRATEGY, MEMORY)
    mine = [each for each in analysis().configurations if each.strategy == "fsdp" and each.world_size == 4]
    assert fastest.values["4", "fsdp"] == max(each.samples_per_second.value for each in mine if each.samples_per_second)
    assert leanest.values["4", "fsdp"] == min(each.peak_memory_bytes.value for each in mine if each.peak_memory_bytes)


@pytest.mark.parametrize(("goal", "best", "word"), [("minimize", min, "lowest"), ("maximize", max, "highest")])
def test_the_best_metric_is_the_one_that_the_goal_asks_for(goal: str, best: Callable[[Iterable[float]], float], word: str) -> None:
    search = replace(subject(), spec={"search": {"kind": "random", "trials": 20}, "metric": {"name": "loss", "goal": goal}})
    mine = [each for each in search.analysis.configurations if each.strategy == "fsdp" and each.world_size == 4]
    found = heat_map.figure(search)
    assert found is not None
    assert heat_map.cells_of(search, RANKS, STRATEGY, METRIC).values["4", "fsdp"] == best(each.metric.value for each in mine if each.metric)
    assert found.caption.startswith(f"The strongest colour is the {word}")


def test_a_grid_shows_speed_and_a_search_its_metric() -> None:
    grid, search = heat_map.figure(subject()), heat_map.figure(subject(search=True))
    assert grid is not None
    assert search is not None
    assert grid.title == f"Samples per second over {RANKS} and {STRATEGY}"
    assert search.title == f"Metric at the end over {RANKS} and {STRATEGY}"


def test_the_reader_chooses_axes_and_measure() -> None:
    found = heat_map.figure(subject(), HeatMapChoice(BATCH, RANKS, "efficiency"))
    assert found is not None
    assert (list(found.table.columns), len(found.table.rows)) == ([f"{RANKS} \\ {BATCH}", "32", "64"], 3)


@pytest.mark.parametrize("choice", [HeatMapChoice("optimizer.lr"), HeatMapChoice(y="x" * 50), HeatMapChoice(measure="speed")])
def test_what_is_not_there_is_refused_with_what_is(choice: HeatMapChoice) -> None:
    with pytest.raises(ProblemError, match="take one of: ") as refused:
        heat_map.figure(subject(), choice)
    assert refused.value.code == "invalid_parameter"


def test_one_axis_is_no_map() -> None:
    only = [each for each in analysis().configurations if each.strategy == "ddp" and each.values[BATCH] == 32]
    assert heat_map.figure(subject(configurations=only)) is None
