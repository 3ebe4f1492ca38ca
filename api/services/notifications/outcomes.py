"""How an attempt at a delivery ended."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST_ANSWER = 500


@dataclass(frozen=True)
class AttemptOutcome:
    """The end of one attempt. `answer` in words; `again`: it is worth another attempt, `retry_after` seconds later where the server said so."""

    delivered: bool
    answer: str
    again: bool = False
    retry_after: float | None = None


def delivered(answer: str) -> AttemptOutcome:
    return AttemptOutcome(True, answer[:LONGEST_ANSWER])


def failed(answer: str, *, again: bool, retry_after: float | None = None) -> AttemptOutcome:
    return AttemptOutcome(False, answer[:LONGEST_ANSWER], again, retry_after)
