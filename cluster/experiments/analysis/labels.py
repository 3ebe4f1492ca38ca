"""Configurations in words: the values that vary, as `fsdp, 2 ranks, batch 32`. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from paceline.cluster.experiments.analysis.words import number
from paceline.cluster.experiments.facts import TrialFacts
from paceline.monitoring.words import plural

WORLD_SIZE, STRATEGY = "world_size", "parallelism.strategy"
_NAMES = {"training.global_batch_size": "batch", "training.micro_batch_size": "micro-batch"}
#: Axes of a mesh, by the field with the axis's size.
_AXES = {f"parallelism.{axis}": axis for axis in ("replicate", "shard", "tensor", "pipeline", "context")}
_RANKS = re.compile(r"\d+ ranks?")
#: Fields whose values are words that need no name before them.
_SPEAK_FOR_THEMSELVES = frozenset({"kind", "strategy", "precision", "preset", "compression"})


def labels(axes: Sequence[str], configurations: Sequence[TrialFacts]) -> list[str]:
    """Return a label for each configuration, told by one of its trials: its strategy and ranks where these vary, and each other varied value.

    Labels that would be equal get their number in the grid.
    """
    with_strategy = len({trial.strategy for trial in configurations}) > 1 or not axes
    texts = [_label(axes, trial, with_strategy) for trial in configurations]
    often = Counter(texts)
    return [text if often[text] == 1 else f"{text} (no. {at + 1})" for at, text in enumerate(texts)]


def without_ranks(label: str, strategy: str) -> str:
    """Return the label of a series: what its configurations' labels say beside their number of ranks; its strategy, where that is nothing."""
    return ", ".join(part for part in label.split(", ") if not _RANKS.fullmatch(part)) or strategy


def words_of(paths: Sequence[str], values: Sequence[Any]) -> str:
    """Return values of some paths in words, such as `batch 32` or `lr 0.001, batch 32`."""
    names, given = _names(paths), list(zip(paths, values, strict=True))
    rest = [(path, value) for path, value in given if path not in _AXES or value != 1] or given
    return ", ".join(_words(path, value, names[path]) for path, value in rest)


def _label(axes: Sequence[str], trial: TrialFacts, with_strategy: bool) -> str:
    told = {*((STRATEGY, *_degrees(trial)) if with_strategy else ()), WORLD_SIZE}
    rest = [path for path in axes if path not in told and path in trial.values]
    parts = [trial.strategy] if with_strategy else []
    if WORLD_SIZE in axes or not axes:
        parts.append(plural(trial.world_size, "rank"))
    names = _names(axes)
    return ", ".join([*parts, *filter(None, (_words(path, trial.values[path], names[path]) for path in rest))])


def _degrees(trial: TrialFacts) -> list[str]:
    """The sizes of axes that need no words beside the plan's: those of one rank, and those that its words have already."""
    return [path for path, axis in _AXES.items() if trial.values.get(path) == 1 or f"{axis} {trial.values.get(path)}" in trial.strategy]


def _names(paths: Sequence[str]) -> dict[str, str]:
    """The last part of each path, or the last two where the last is not enough."""
    often = Counter(path.rpartition(".")[2] for path in paths)
    return {path: _NAMES.get(path) or _name(path, 1 if often[path.rpartition(".")[2]] == 1 else 2) for path in paths}


def _name(path: str, parts: int) -> str:
    return " ".join(path.split(".")[-parts:]).replace("_", " ")


def _words(path: str, value: Any, name: str) -> str:
    if path == WORLD_SIZE:
        return plural(int(value), "rank")
    if isinstance(value, Mapping):
        return ", ".join(str(part) if key == "strategy" else f"{key} {part}" for key, part in value.items())
    if value is None:  # of a single process, which has no plan
        return "" if path.startswith("parallelism.") else f"{name} unset"
    if isinstance(value, bool):
        return name if value else f"no {name}"
    if isinstance(value, str) and path.rpartition(".")[2] in _SPEAK_FOR_THEMSELVES:
        return value
    return f"{name} {number(value) if isinstance(value, float) else value}"
