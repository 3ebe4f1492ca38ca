"""Pairs of configurations that differ in one value and in nothing else. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials, without
from paceline.cluster.experiments.spec import ExperimentSpec

#: Up to so many values are compared each with each; more of them each with the next one.
MOST_VALUES_OF_ALL_PAIRS = 4
#: Beyond, further pairs are left out: more comparisons than anybody reads, and each makes all others harder to show.
MOST_PAIRS = 4_000


@dataclass(frozen=True)
class ConfigurationPair:
    """Two configurations, the first before the second in the grid, that differ in these paths only: one, or the columns of one zip."""

    paths: tuple[str, ...]
    first: RepeatedTrials
    second: RepeatedTrials

    @property
    def path(self) -> str:
        return ", ".join(self.paths)

    @property
    def values(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The values of the paths in the first and in the second configuration."""
        return tuple(self.first.values[path] for path in self.paths), tuple(self.second.values[path] for path in self.paths)


def pairs(spec: ExperimentSpec, axes: Sequence[str], configurations: Sequence[RepeatedTrials]) -> list[ConfigurationPair]:
    """Return the pairs of measured configurations that differ in one axis, MOST_PAIRS at most, in the order of the axes and of the grid."""
    measured = [each for each in configurations if each.measured]
    found = [pair for paths in _units(spec, axes) for pair in _pairs_along(paths, measured)]
    return found[:MOST_PAIRS]


def _units(spec: ExperimentSpec, axes: Sequence[str]) -> list[tuple[str, ...]]:
    """The paths that change by themselves, each alone, and those that change together."""
    together = [tuple(path for path in table if path in axes) for table in spec.zip]
    zipped = {path for table in together for path in table}
    return [*((path,) for path in axes if path not in zipped), *(table for table in together if table)]


def _pairs_along(paths: tuple[str, ...], configurations: Sequence[RepeatedTrials]) -> list[ConfigurationPair]:
    equal_elsewhere: dict[str, list[RepeatedTrials]] = {}
    for each in configurations:
        if all(path in each.values for path in paths):
            equal_elsewhere.setdefault(without(each.values, paths), []).append(each)
    return [
        ConfigurationPair(paths, one, other)
        for members in equal_elsewhere.values()
        for one, other in (combinations(members, 2) if len(members) <= MOST_VALUES_OF_ALL_PAIRS else pairwise(members))
        if any(one.values[path] != other.values[path] for path in paths)
    ]
