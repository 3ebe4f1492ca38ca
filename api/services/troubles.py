"""What fails at the moment, by loop, job and node: when it is tried again, and what operators are told of it. In memory, of this process."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

#: What raised is tried again after 1, 2, 4, ... seconds, give or take a half, at most this; at once where its row has changed.
RETRY_SECONDS_MAX = 15.0
MOST_DOUBLINGS = 10
#: A loop whose steps fail this often in a row, one right after the other, is told of as failing.
MANY_FAILURES = 3

Kind = Literal["job", "node"]


@dataclass(frozen=True)
class Subject:
    """One job or node, as a loop takes its turn at it. A new `version` is tried at once."""

    kind: Kind
    id: str
    version: int = 0


@dataclass(frozen=True)
class Trouble:
    """Why a job or a node is held up in one task of a loop."""

    error: str
    version: int
    failures: int
    retry_at: datetime


@dataclass
class Troubles:
    """Held by `Services`; whoever takes a turn notes here how it went."""

    _held_up: dict[tuple[str, Kind, str], Trouble] = field(default_factory=dict)
    _failing_loops: dict[str, int] = field(default_factory=dict)

    def is_due(self, task: str, subject: Subject, now: datetime) -> bool:
        known = self._held_up.get((task, subject.kind, subject.id))
        return known is None or known.version != subject.version or now >= known.retry_at

    def note(self, task: str, subject: Subject, error: str, now: datetime) -> bool:
        """Whether that is news: it did not fail before, or with another error."""
        key = (task, subject.kind, subject.id)
        before = self._held_up.get(key)
        failures = before.failures + 1 if before else 1
        self._held_up[key] = Trouble(error, subject.version, failures, now + timedelta(seconds=retry_seconds(failures)))
        return before is None or before.error != error

    def over(self, task: str, subject: Subject) -> Trouble | None:
        """It went well: what it was held up by until now."""
        return self._held_up.pop((task, subject.kind, subject.id), None)

    def forget_all_but(self, task: str, ids: Collection[str]) -> None:
        """The others have ended, or are of no concern to this task any more."""
        for key in [key for key in self._held_up if key[0] == task and key[2] not in ids]:
            del self._held_up[key]

    def note_loop(self, name: str, failures: int) -> None:
        """How many steps of a loop have failed in a row; 0: the last one went well."""
        self._failing_loops[name] = failures

    @property
    def loop_failures(self) -> dict[str, int]:
        """Steps that failed in a row, by loop, of those that this process has run."""
        return dict(self._failing_loops)

    @property
    def failing_loops(self) -> list[str]:
        return sorted(name for name, failures in self._failing_loops.items() if failures >= MANY_FAILURES)

    def held_up(self, kind: Kind) -> int:
        """How many jobs, or nodes."""
        return len({id for _, of, id in self._held_up if of == kind})


def retry_seconds(failures: int) -> float:
    return min(2.0 ** min(failures - 1, MOST_DOUBLINGS), RETRY_SECONDS_MAX) * random.uniform(0.5, 1.5)
