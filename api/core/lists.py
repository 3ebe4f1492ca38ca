"""Parses query parameters: lists between commas, ranks that a job has, times with a zone."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from paceline.api.errors import ProblemError


def words(text: str | None) -> list[str] | None:
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def numbers(name: str, text: str | None, *, most: int) -> list[int] | None:
    """Whole numbers, each once. Raises a problem that names the parameter where a value is none."""
    parts = words(text)
    if parts is None:
        return None
    wrong = next((part for part in parts if not part.isdecimal() or len(part) > 9), None)
    if wrong is not None:
        raise ProblemError("invalid_parameter", f"{name}={text!r}: {wrong!r} is not a whole number; write {name}=0,1")
    chosen = list(dict.fromkeys(int(part) for part in parts))
    if len(chosen) > most:
        raise ProblemError("invalid_parameter", f"{name} names {len(chosen)} values; the limit is {most}: ask in several requests")
    return chosen


def members(name: str, text: str | None, allowed: Collection[str]) -> list[str] | None:
    parts = words(text)
    wrong = next((part for part in parts or () if part not in allowed), None)
    if wrong is not None:
        raise ProblemError("invalid_parameter", f"{name}={text!r}: {wrong!r} is not one of {', '.join(sorted(allowed))}")
    return parts


def require_ranks(name: str, chosen: Collection[int], world: int) -> None:
    """Refuse ranks that the job has never had."""
    unknown = sorted(rank for rank in chosen if rank >= world)
    if unknown:
        there = "rank 0 alone" if world == 1 else f"ranks 0 to {world - 1}"
        raise ProblemError("invalid_parameter", f"{name}={','.join(map(str, unknown))}: the job has {there}")


def require_zone(name: str, time: datetime | None) -> None:
    """Refuse a time that may be of any place on earth."""
    if time is not None and time.tzinfo is None:
        raise ProblemError("invalid_parameter", f"{name}={time.isoformat()} has no time zone; write {time.isoformat()}Z for UTC")
