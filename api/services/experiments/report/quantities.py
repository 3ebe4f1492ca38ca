"""How a report writes numbers: three digits, a unit that fits, a dash for unknown values. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.cluster.experiments.findings import Configuration, Estimate

UNKNOWN = "–"
_BINARY = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))
_TIMES = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))

Show = Callable[[float], str]


def digits(value: float) -> str:
    """Three significant digits without an exponent where that reads well: 1,240 and 0.0312."""
    if not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    rounded = float(f"{value:.2e}")
    exponent = math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(0, 2 - exponent)}f}" if -4 <= exponent < 9 else f"{value:.2e}"


def seconds(value: float) -> str:
    factor, unit = next(((factor, unit) for factor, unit in _TIMES if abs(value) >= factor), _TIMES[-1])
    return f"{digits(value / factor)} {unit}"


def size(value: float) -> str:
    """Bytes with a binary prefix, such as 1.24 GiB."""
    factor, unit = next(((factor, unit) for factor, unit in _BINARY if abs(value) >= factor), (1, "B"))
    return f"{digits(value / factor)} {unit}"


def percent(value: float) -> str:
    return f"{value * 100:.1f} %"


def joules(value: float) -> str:
    return f"{digits(value / 1000)} kJ" if abs(value) >= 1000 else f"{digits(value)} J"


def times(value: float) -> str:
    """A factor, such as 1.93×."""
    return f"{value:.2f}×"


def or_dash(value: float | None, show: Show = digits) -> str:
    return UNKNOWN if value is None else show(value)


def median(value: Estimate | None, show: Show = digits) -> str:
    return UNKNOWN if value is None else show(value.value)


def plain(value: Any) -> str:
    """A value of a job spec as its user would write it."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Measure:
    """A figure that configurations have, and how it is called and written."""

    field: str  # of `Configuration`
    label: str
    show: Show
    axis: str = ""  # the unit of an axis; of times and sizes it goes by how large they are
    scale: float = 1.0  # of an axis: its numbers are values times this

    def of(self, configuration: Configuration) -> Estimate | None:
        found: Estimate | None = getattr(configuration, self.field)
        return found

    def on_axis(self, largest: float) -> tuple[str, float]:
        """The unit of an axis that reaches to `largest`, and by what its values are multiplied."""
        if self.show not in (seconds, size):
            return self.axis, self.scale
        units = _TIMES if self.show is seconds else _BINARY
        factor, unit = next(((factor, unit) for factor, unit in units if largest >= factor), units[-1])
        return unit, 1 / factor


THROUGHPUT = Measure("samples_per_second", "samples per second", digits, "samples per second")
STEP_TIME = Measure("step_seconds", "time of a step", seconds)
MEMORY = Measure("peak_memory_bytes", "peak memory", size)
EFFICIENCY = Measure("efficiency", "scaling efficiency", percent, "percent of ideal", 100)
METRIC = Measure("metric", "metric at the end", digits)
#: In the order of a table's columns.
MEASURES: Sequence[Measure] = (
    THROUGHPUT,
    Measure("tokens_per_second", "tokens per second", digits, "tokens per second"),
    STEP_TIME,
    Measure("speedup", "speed-up", times, "times the single process"),
    EFFICIENCY,
    MEMORY,
    Measure("exposed_communication", "exposed communication", percent, "percent of a step", 100),
    Measure("bubble", "pipeline bubble", percent, "percent of a step", 100),
    Measure("bytes_per_step", "sent per step", size),
    METRIC,
    Measure("goodput", "goodput", percent, "percent", 100),
    Measure("slot_hours", "slot-hours", digits, "slot-hours"),
    Measure("energy_joules", "energy", joules, "kJ", 1e-3),
)
