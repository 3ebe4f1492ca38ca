"""What a row of the table says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from scripts.gpu_check.machine import Machine


class RowFailedError(Exception):
    """A check failed; the message gives what was seen and what was expected."""


class Seen(msgspec.Struct, frozen=True):
    """Result of a row that is ok: a sentence, and figures."""

    text: str
    figures: Mapping[str, float] = {}


class Outcome(msgspec.Struct, frozen=True):
    row: str
    status: Literal["ok", "failed", "skipped"]
    seconds: float
    text: str
    figures: Mapping[str, float] = {}


class Row(NamedTuple):
    """`check` runs in a process of its own, which has `seconds`."""

    check: Callable[[Machine], Seen]
    seconds: float = 180.0


def line(outcome: Outcome, width: int) -> str:
    return f"{outcome.row:{width}}  {outcome.status:7}  {outcome.seconds:6.1f} s  {outcome.text}"
