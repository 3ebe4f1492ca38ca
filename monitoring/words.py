"""Words of sentences that all rooms write."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, such as `2 slots`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def counted(count: int, noun: str) -> str:
    """Return a count with thousands separators and its noun, such as `12,800 samples`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def duration(seconds: float) -> str:
    """Return a length of time as the dashboard writes it: 0.4 s, 12 s, 3 min 05 s, 2 h 10 min, 3 d 4 h."""
    whole = max(0, round(seconds))
    if seconds < 10:
        return f"{max(0.0, seconds):.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"
