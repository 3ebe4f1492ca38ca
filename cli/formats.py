"""Formats numbers, ages and sizes for tables: SI units, three digits, a dash for unknown values."""

from __future__ import annotations

from datetime import UTC, datetime

from paceline.cli.api_types import LogEntry

#: A number of the API, in which NaN and the infinities are words.
AnyFloat = float | str

UNKNOWN = "-"


def number(value: AnyFloat | None, digits: int = 3) -> str:
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else f"{value:.{digits}f}"


def significant(value: AnyFloat | None) -> str:
    """A number with three significant digits: 0.00294 and 2.1e-07."""
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else f"{value:.3g}"


def quantity(value: AnyFloat | None, unit: str = "") -> str:
    """A number with an SI prefix: 12345 -> 12.3 k."""
    if value is None or isinstance(value, str):
        return UNKNOWN if value is None else value
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 rank", "2 ranks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 48 else f"{hours // 24}d{hours % 24:02d}h"


def seconds(value: float | None) -> str:
    """A short time in seconds."""
    return UNKNOWN if value is None else f"{value:.3f} s"


def times(factor: float | None) -> str:
    return UNKNOWN if factor is None else f"x {factor:.2f}"


def age(then: datetime | None, now: datetime | None = None) -> str:
    return UNKNOWN if then is None else duration(max(0.0, ((now or datetime.now(UTC)) - then).total_seconds()))


def steps(done: int, total: int | None) -> str:
    return f"{done}/{total}" if total else str(done)


def printed_line(entry: LogEntry) -> str:
    level = entry.level.upper()
    mark = "" if level == "INFO" or entry.text.startswith(level) else f"{level} "
    return f"{entry.time:%H:%M:%S} [{entry.rank}] {mark}{entry.text}"
