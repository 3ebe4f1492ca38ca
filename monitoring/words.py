"""Words of sentences that all rooms write."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return a count with its noun, such as `2 slots`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
