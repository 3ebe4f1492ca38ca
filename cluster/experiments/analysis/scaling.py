"""Speedup and efficiency against the single process, and the series of configurations that differ in the number of ranks only. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.cluster.experiments.analysis.configurations import RepeatedTrials, section, series_key, work_key
from paceline.cluster.experiments.analysis.labels import without_ranks
from paceline.cluster.experiments.analysis.statistics import ratio_estimate
from paceline.cluster.experiments.findings import Estimate


@dataclass(frozen=True)
class ScalingSeries:
    """Configurations that are equal in all but the number of ranks, the single process first where there is one, then by ranks."""

    label: str
    strategy: str
    members: Sequence[RepeatedTrials]

    @property
    def world_sizes(self) -> list[int]:
        return sorted({member.world_size for member in self.members})


def references(configurations: Sequence[RepeatedTrials]) -> dict[int, RepeatedTrials]:
    """Return the single process to compare each configuration with, by the configuration's index; those without one are missing.

    A single process does the same work: all values but ranks, resources and plan are equal. Of several the one with the most equal values is taken
    (as with the same activation checkpointing), then a baseline, then the first.
    """
    singles: dict[str, list[RepeatedTrials]] = {}
    for each in configurations:
        if each.world_size == 1 and each.measured:
            singles.setdefault(work_key(each.values), []).append(each)
    found = {}
    for each in configurations:
        if candidates := singles.get(work_key(each.values)):
            found[each.index] = each if each in candidates else max(candidates, key=lambda one: _likeness(one, each))
    return found


def speedup(configuration: RepeatedTrials, reference: RepeatedTrials | None, scaling: str, *, per_rank: bool = False) -> Estimate | None:
    """Return how many times as many samples per second a configuration gets through as its single process; `per_rank`: its efficiency.

    Where samples are not counted, step times are compared; for weak scaling a step of more ranks has as many times more samples.
    """
    if reference is None:
        return None
    scale = 1 / configuration.world_size if per_rank else 1.0
    if reference is configuration:
        count = len(configuration.figures["step_seconds"]) or len(configuration.figures["samples_per_second"])
        return Estimate(value=1.0, count=count) if count else None
    by_samples = ratio_estimate(configuration.figures["samples_per_second"], reference.figures["samples_per_second"], scale)
    if by_samples is not None:
        return by_samples
    work = configuration.world_size if scaling == "weak" else 1
    return ratio_estimate(reference.figures["step_seconds"], configuration.figures["step_seconds"], scale * work)


def rank_series(configurations: Sequence[RepeatedTrials], singles: Mapping[int, RepeatedTrials]) -> list[ScalingSeries]:
    """Return the series of the experiment, in the order of the grid; a series of a single process alone is none."""
    members: dict[str, list[RepeatedTrials]] = {}
    for each in configurations:
        if each.world_size > 1 and each.measured:
            members.setdefault(series_key(each.values), []).append(each)
    return [_series(found, singles.get(found[0].index)) for found in members.values()]


def _series(found: Sequence[RepeatedTrials], single: RepeatedTrials | None) -> ScalingSeries:
    ordered = sorted(found, key=lambda each: (each.world_size, each.index))
    several = len({each.world_size for each in ordered}) > 1
    label = without_ranks(ordered[0].label, ordered[0].strategy) if several or single is not None else ordered[0].label
    return ScalingSeries(label, ordered[0].strategy, [*([single] if single is not None else []), *ordered])


def _likeness(single: RepeatedTrials, configuration: RepeatedTrials) -> tuple[int, bool, int]:
    shared = [path for path in single.values if section(path) == "parallelism" and path in configuration.values]
    equal = sum(single.values[path] == configuration.values[path] for path in shared)
    return equal, single.baseline, -single.index
