"""The present failures by loop, job and node: when each is tried again, and what operators see of it. In memory, of this process."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from paceline.monitoring.backoff import Backoff

#: What raised is tried again after at most 1, 2, 4, ... seconds, up to the longest; at once where its row has changed.
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 1.0, 22.0
#: A loop whose steps fail this often in a row, one right after the other, is told of as failing.
MANY_FAILURES = 3

SubjectKind = Literal["job", "node", "experiment", "pool"]


@dataclass(frozen=True)
class Subject:
    """One job, node, experiment or pool, as a loop takes its turn at it. A new `version` is tried at once."""

    kind: SubjectKind
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
    """The present failures, held by `Services`; the tasks of loops note here how they went."""

    _held_up: dict[tuple[str, SubjectKind, str], Trouble] = field(default_factory=dict)
    _failing_loops: dict[str, int] = field(default_factory=dict)

    def is_due(self, task: str, subject: Subject, now: datetime) -> bool:
        known = self._held_up.get((task, subject.kind, subject.id))
        if known is None or known.version != subject.version:
            return True
        left = known.retry_at - now
        return left <= timedelta() or left > timedelta(seconds=LONGEST_RETRY_SECONDS)  # no wait is longer: the clock was set back

    def has_failed(self, task: str, subject: Subject) -> bool:
        """Whether the subject failed when it was last tried."""
        return (task, subject.kind, subject.id) in self._held_up

    def failed(self, task: str) -> set[str]:
        """The ids of the subjects that failed when they were last tried."""
        return {id for each, _, id in self._held_up if each == task}

    def note(self, task: str, subject: Subject, error: str, now: datetime) -> bool:
        """Note a failure. Returns whether that is new: the subject did not fail before, or with another error."""
        key = (task, subject.kind, subject.id)
        before = self._held_up.get(key)
        failures = before.failures + 1 if before else 1
        self._held_up[key] = Trouble(error, subject.version, failures, now + timedelta(seconds=retry_seconds(failures)))
        return before is None or before.error != error

    def over(self, task: str, subject: Subject) -> Trouble | None:
        """Note a success. Returns what held the subject up until now."""
        return self._held_up.pop((task, subject.kind, subject.id), None)

    def forget_all_but(self, task: str, ids: Collection[str]) -> None:
        """Forget all other subjects: they have ended, or do not concern this task any more."""
        for key in [key for key in self._held_up if key[0] == task and key[2] not in ids]:
            del self._held_up[key]

    def note_loop(self, name: str, failures: int) -> None:
        """Note how many steps of a loop have failed in a row; 0: the last one went well."""
        self._failing_loops[name] = failures

    @property
    def loop_failures(self) -> dict[str, int]:
        """Steps that failed in a row, by loop, of the loops that this process has run."""
        return dict(self._failing_loops)

    @property
    def failing_loops(self) -> list[str]:
        return sorted(name for name, failures in self._failing_loops.items() if failures >= MANY_FAILURES)

    def held_up(self, kind: SubjectKind) -> int:
        """The number of jobs, or nodes, that are held up."""
        return len({id for _, of, id in self._held_up if of == kind})


def retry_seconds(failures: int) -> float:
    """How long to wait after this many failures in a row."""
    return Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS).seconds_after(failures)
