"""Which jobs a list has, as users type it: labels as KEY=VALUE, times as an age or a date."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from paceline.cli.errors import UsageProblem
from paceline.cli.repeated_options import by_name

_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"(\d{1,6}) *(min|[smhdw])")


def label_parameters(labels: Sequence[str]) -> dict[str, str]:
    """The query parameters for labels that are typed as KEY=VALUE. Raises UsageProblem."""
    return {f"label.{name}": value for name, value in label_pairs(labels).items()}


def label_pairs(labels: Sequence[str]) -> dict[str, str]:
    """Labels by name. Raises UsageProblem for one without `=`, and for a name with two values, of which one would be dropped."""
    pairs = [label.partition("=") for label in labels]
    wrong = next((name for name, sign, _ in pairs if not sign or not name), None)
    if wrong is not None:
        raise UsageProblem(f"--label {wrong} is not KEY=VALUE", "for example: --label team=nlp")
    return by_name("--label", ((name, value) for name, _, value in pairs), "a label has one value: keep one of them")


def since(text: str | None, now: datetime) -> str | None:
    """The time that an age (`30m`, `12h`, `2d`, `1w`) or a date names, as the API reads it. Dates without a zone are local. Raises
    UsageProblem."""
    if text is None:
        return None
    if found := _AGE.fullmatch(text.strip()):
        return (now - timedelta(seconds=int(found[1]) * _SECONDS[found[2]])).astimezone(UTC).isoformat()
    try:
        return datetime.fromisoformat(text.strip()).astimezone(UTC).isoformat()
    except (ValueError, OverflowError):
        raise UsageProblem(
            f"--since {text!r} is neither an age nor a date", "write it as 30m, 12h, 2d, 2026-11-20 or 2026-11-20T12:00"
        ) from None
