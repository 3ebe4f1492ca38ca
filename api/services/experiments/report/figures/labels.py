"""Words for configurations in figures: short, and apart from each other. Pure."""

from __future__ import annotations

from paceline.api.services.experiments.report.quantities import plain
from paceline.cluster.experiments.analysis.labels import without_ranks
from paceline.cluster.experiments.findings import Analysis, Configuration

WORLD_SIZE = "world_size"
MOST_CHARACTERS = 42

SeriesKey = tuple[tuple[str, str], ...]


def short(label: str, most: int = MOST_CHARACTERS) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def series_key(configuration: Configuration) -> SeriesKey:
    """The values that configurations of one series have in common: all but the number of ranks."""
    values = {path: plain(value) for path, value in configuration.values.items() if path != WORLD_SIZE}
    return tuple(sorted(values.items()))


def series_label(configuration: Configuration) -> str:
    """A series in words, such as `fsdp, batch 64`."""
    return short(without_ranks(configuration.label, configuration.strategy))


def measured(analysis: Analysis) -> list[Configuration]:
    """The configurations of which the time of a step is known, in the order of the grid."""
    return [each for each in analysis.configurations if each.step_seconds is not None]
