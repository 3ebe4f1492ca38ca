"""Trials grouped by their values: the configurations of an experiment, and the axes along which they differ. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from paceline.cluster.experiments.analysis.figures import FIGURES, figures_of, is_measured
from paceline.cluster.experiments.analysis.labels import WORLD_SIZE, labels
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.spec import ExperimentSpec

#: Sections of a job spec that say on what and how a job runs, not what it computes.
_OF_THE_WORLD = frozenset({WORLD_SIZE, "resources"})
_OF_THE_PLAN = frozenset({*_OF_THE_WORLD, "parallelism", "communication"})
#: Paths that change how fast a step is, or of how many samples, rather than what is learned.
_SECTIONS_OF_SPEED = frozenset(
    {"precision", "compile", "reproducible", "compression", "profile", "gradients", "checkpoint", "fault_tolerance", "environment"}
)
_PATHS_OF_SPEED = frozenset({"training.global_batch_size", "training.micro_batch_size", "training.data_workers", "training.seed"})


@dataclass(frozen=True)
class RepeatedTrials:
    """All trials with the same values; `index` counts configurations in the order of the grid."""

    index: int
    label: str
    values: Mapping[str, Any]
    world_size: int
    strategy: str
    baseline: bool
    trials: Sequence[TrialFacts]
    figures: Mapping[str, Sequence[float]] = field(repr=False, default_factory=dict)  # by name, in order of size

    @cached_property
    def measured(self) -> Sequence[TrialFacts]:
        return [trial for trial in self.trials if is_measured(trial)]

    @property
    def completed(self) -> int:
        return sum(trial.state == "completed" for trial in self.trials)

    @property
    def refusal(self) -> str | None:
        return next((trial.refusal for trial in self.trials if trial.state == "refused"), None)


def canonical(values: Mapping[str, Any]) -> str:
    """Return a text that is equal for equal values, whatever the order of their paths."""
    return json.dumps(values, sort_keys=True, default=str)


def without(values: Mapping[str, Any], paths: Iterable[str]) -> str:
    """Return the canonical text of all values but those of these paths."""
    left_out = set(paths)
    return canonical({path: value for path, value in values.items() if path not in left_out})


def work_key(values: Mapping[str, Any]) -> str:
    """Return the text of the values that say what is computed: without ranks, resources and plan."""
    return canonical({path: value for path, value in values.items() if section(path) not in _OF_THE_PLAN})


def series_key(values: Mapping[str, Any]) -> str:
    """Return the text of all values but the number of ranks."""
    return canonical({path: value for path, value in values.items() if section(path) not in _OF_THE_WORLD})


def section(path: str) -> str:
    """Return the first part of a path, such as `training` of `training.seed`."""
    return path.partition(".")[0]


def changes_learning(path: str) -> bool:
    """Tell whether a path may change what a model learns from a sample, such as its learning rate or its size."""
    return section(path) not in _OF_THE_PLAN | _SECTIONS_OF_SPEED and path not in _PATHS_OF_SPEED


def group(spec: ExperimentSpec, trials: Sequence[TrialFacts]) -> list[RepeatedTrials]:
    """Group trials into configurations, in the order of the grid, with a label in words for each."""
    by_values: dict[tuple[str, bool], list[TrialFacts]] = {}
    for trial in sorted(trials, key=lambda each: each.index):
        by_values.setdefault((canonical(trial.values), trial.baseline), []).append(trial)
    groups = list(by_values.values())
    names = labels(axes(spec, trials), [members[0] for members in groups])
    return [_repeated(index, name, members) for index, (name, members) in enumerate(zip(names, groups, strict=True))]


def axes(spec: ExperimentSpec, trials: Sequence[TrialFacts]) -> list[str]:
    """Return the paths that have more than one value among the trials: those of the spec in its order, the number of ranks, any others."""
    found: dict[str, set[str]] = {WORLD_SIZE: {str(trial.world_size) for trial in trials}}
    for trial in trials:
        for path, value in trial.values.items():
            found.setdefault(path, set()).add(json.dumps(value, sort_keys=True, default=str))
    known = [*spec.paths, WORLD_SIZE]
    ordered = [*known, *sorted(found.keys() - {*known})]
    return [path for path in ordered if len(found.get(path, ())) > 1]


def _repeated(index: int, label: str, members: Sequence[TrialFacts]) -> RepeatedTrials:
    first = members[0]
    return RepeatedTrials(
        index=index,
        label=label,
        values=first.values,
        world_size=first.world_size,
        strategy=first.strategy,
        baseline=first.baseline,
        trials=members,
        figures={name: figures_of(members, name) for name in FIGURES},
    )
