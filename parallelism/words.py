"""Bytes and seconds as text, for sentences about plans and choices. Pure."""

from __future__ import annotations

UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def size(count: int) -> str:
    """Return bytes as text, such as `1.5 GiB`."""
    power = min(len(UNITS) - 1, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {UNITS[power]}" if power else f"{count} B"


def duration(seconds: float) -> str:
    """Return seconds as text with three significant digits, such as `41.3 ms`."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
