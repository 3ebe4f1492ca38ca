"""The trials of values that a search has drawn: of new ones, and of former ones that it would draw again when it is posted again. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from paceline.cluster.experiments.cells import Combination, cells_of
from paceline.cluster.experiments.facts import Cell
from paceline.cluster.experiments.search_space import SearchSpace, Values
from paceline.cluster.experiments.spec import ExperimentSpec, Search

SAME_JOB = "its job would be that of another trial: its values make no difference"


def most_draws(search: Search) -> int:
    """Return how many values a search draws in all: as many as it has trials, or all there are."""
    return int(min(search.trials, SearchSpace.of(search).size))


def cells_of_draw(spec: ExperimentSpec, values: Values, configuration: int, taken: Collection[str]) -> list[Cell]:
    """Return the repeats of drawn values, whose configuration has this number. `taken`: the keys of the trials of all other draws.

    A draw whose job is that of another one does not run, and is kept as refused, since the next values are drawn by what was drawn before."""
    cells, _ = cells_of(spec, Combination(values), configuration * spec.repeats)
    if any(cell.key in taken for cell in cells):
        return [replace(cell, key=f"{cell.key}-{configuration}", refusal=SAME_JOB) for cell in cells]
    return cells


def cells_of_former_draws(spec: ExperimentSpec, draws: Mapping[int, Values], known: Collection[str]) -> list[Cell]:
    """Return the cells of the former draws that the search may draw again for the same job as before. `draws`: their values by the number of
    their configuration; `known`: the keys of their trials."""
    assert spec.search is not None
    space = SearchSpace.of(spec.search)
    found, taken = list[Cell](), set[str]()
    for configuration in sorted(draws):
        values = {path: draws[configuration].get(path) for path in space.dimensions}
        if space.places_of(values) is None:
            continue
        cells = cells_of_draw(spec, values, configuration, taken)
        if any(cell.key in known for cell in cells):
            found += cells
            taken |= {cell.key for cell in cells}
    return found
