"""Reads moments and lengths of time as people write them: a time of day, a date with a time, how long ago; 90, 10m, 1h30m."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta

from paceline.cli.errors import UsageProblem

_AGO = re.compile(r"(?=\d)(?:(?P<days>\d+)d)?(?:(?P<hours>\d+)h)?(?:(?P<minutes>\d+)m)?(?:(?P<seconds>\d+)s)?")
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?")


def moment(option: str, text: str | None, now: datetime) -> datetime | None:
    """The moment that `text` names; times without a zone are local. Raises UsageProblem, with the option's name."""
    if text is None:
        return None
    try:
        return _read(text.strip(), now.astimezone()).astimezone()
    except (ValueError, OverflowError):
        hint = "write a time such as 14:05, '2026-11-25 14:05' or 2026-11-25T14:05Z, or how long ago: 90s, 10m, 1h30m, 2d"
        raise UsageProblem(f"{option} {text!r} is not a time", hint) from None


def _read(text: str, now: datetime) -> datetime:
    if ago := _AGO.fullmatch(text):
        return now - timedelta(**{unit: int(number) for unit, number in ago.groupdict(default="0").items()})
    if clock := _CLOCK.fullmatch(text):
        hour, minute, second = map(int, clock.groups("0"))
        today = now.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return today if today <= now else today - timedelta(days=1)
    return datetime.fromisoformat(text)


def seconds(text: str | float) -> float:
    """The seconds of a length of time as people write it: 90, 90s, 10m, 1h30m, 2d. For `typer.Option(parser=...)`. Raises ValueError."""
    try:
        found = float(text)
    except ValueError:
        length = _AGO.fullmatch(str(text).strip())
        if length is None:
            raise ValueError(f"{text!r} is not a length of time; write seconds, or 90s, 10m, 1h30m, 2d") from None
        return timedelta(**{unit: int(number) for unit, number in length.groupdict(default="0").items()}).total_seconds()
    if not math.isfinite(found) or found < 0:
        raise ValueError(f"{text!r} is not a length of time; write seconds from 0, or 90s, 10m, 1h30m, 2d")
    return found
