"""Formats numbers, ages and sizes for tables: SI units, three digits, a dash for unknown values."""

from __future__ import annotations

from datetime import UTC, datetime

from paceline.cli.api_types import LogEntry
from paceline.cli.render.output import without_escapes
from paceline.monitoring import words

#: A number of the API, in which NaN and the infinities are words.
AnyFloat = float | str

UNKNOWN = "-"


def number(value: AnyFloat | None, digits: int = 3) -> str:
    """A number with this many decimals; one that is too small for two digits of its own among them as `significant` writes it."""
    if value is None or isinstance(value, str):
        return UNKNOWN if value is None else value
    return f"{value:.{digits}f}" if value == 0 or abs(value) >= 10 ** (1 - digits) else significant(value)


def significant(value: AnyFloat | None) -> str:
    """A number with three significant digits: 0.00294 and 2.1e-07."""
    if value is None:
        return UNKNOWN
    return value if isinstance(value, str) else f"{value:.3g}"


def quantity(value: AnyFloat | None, unit: str = "") -> str:
    """A number with an SI prefix: 12345 -> 12.3 k; of bytes with a binary one, as in the dashboard: 12345 -> 12.1 KiB."""
    if value is None or isinstance(value, str):
        return UNKNOWN if value is None else value
    if unit == "B":
        return _binary(value)
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def throughput(tokens: AnyFloat | None, samples: AnyFloat | None) -> str:
    """Tokens and samples per second, as far as they are known: "1.2 k tokens/s, 34 samples/s"; a model that reads no tokens has samples alone."""
    known = [f"{quantity(rate)} {noun}/s" for rate, noun in ((tokens, "tokens"), (samples, "samples")) if rate is not None]
    return ", ".join(known) or UNKNOWN


def _binary(size: float) -> str:
    for power, prefix in ((5, "P"), (4, "T"), (3, "G"), (2, "M"), (1, "K")):
        if size >= 1024**power:
            return f"{size / 1024**power:.1f} {prefix}iB"
    return f"{size:.0f} B"


def count(number: int, noun: str) -> str:
    """A number with its noun: "1 rank", "2 ranks"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def duration(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else words.duration(seconds)


def seconds(value: float | None) -> str:
    """A short time in seconds."""
    return UNKNOWN if value is None else f"{value:.3f} s"


def times(factor: float | None) -> str:
    return UNKNOWN if factor is None else f"x {factor:.2f}"


def age(then: datetime | None, now: datetime | None = None) -> str:
    """How long ago, in one unit, as the dashboard writes it."""
    if then is None:
        return UNKNOWN
    seconds = max(0, int(((now or datetime.now(UTC)) - then).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


def since(then: datetime | None, now: datetime | None = None) -> str:
    return "never" if then is None else f"{age(then, now)} ago"


def day(moment: datetime) -> str:
    """The day of a moment, in local time."""
    return f"{moment.astimezone():%Y-%m-%d}"


def steps(done: int, total: int | None) -> str:
    return f"{done:,}/{total:,}" if total else f"{done:,}"


def printed_line(entry: LogEntry, *, full_time: bool = False, colours: bool = False) -> str:
    """A log line with the local time at which it was printed, without escape sequences. `full_time`: with date, milliseconds and zone.
    `colours`: with those that the text sets."""
    level, text = entry.level.upper(), without_escapes(entry.text, colours=colours)
    mark = "" if level == "INFO" or level in text else f"{level} "
    local = entry.time.astimezone()
    time = local.isoformat(timespec="milliseconds") if full_time else f"{local:%H:%M:%S}"
    return f"{time} [{entry.rank}] {mark}{text}"
