"""Decides which facts of the history are notifications, and which rules ask for them. Pure.

A *fact* is what one rule tells once. Its key names it for ever: `failed:812` is the end that event 812 records, `nan:<job>:3` all losses of
generation 3 that were no numbers. Facts that no event records (a long wait, a full disk, lost goodput) are looked for now and then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from paceline.cluster.states import JobState


class NotificationEvent(StrEnum):
    """The kinds of facts that a rule can ask for."""

    FAILED = "failed"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    DEGRADED = "degraded"
    NAN = "nan"
    QUEUED_LONG = "queued_long"
    GOODPUT_LOW = "goodput_low"
    DISK_LOW = "disk_low"


#: The events of the history that can be facts.
TYPES = frozenset({"job.state", "job.closed_up", "job.fell_back", "job.loss_not_finite"})
#: Facts of the coordinator, which no job has.
OF_NO_JOB = frozenset({NotificationEvent.DISK_LOW})
_ENDS = {
    JobState.FAILED: NotificationEvent.FAILED,
    JobState.COMPLETED: NotificationEvent.FINISHED,
    JobState.CANCELLED: NotificationEvent.CANCELLED,
    JobState.RECOVERING: NotificationEvent.DEGRADED,
}
#: Goodput is not looked at sooner: a job that has just started has done little else than start.
GOODPUT_AFTER = timedelta(minutes=10)
#: Goodput was low until it is so much above the limit, so that it does not come and go.
GOODPUT_BACK = 0.02


@dataclass(frozen=True)
class RecordedEvent:
    """The parts of an event of the history that decide."""

    seq: int
    type: str
    job_id: str | None
    generation: int | None
    before: str | None = None
    after: str | None = None


@dataclass(frozen=True)
class Fact:
    """Something that a rule tells once. `seq`: of the event that records it; None: it was looked for."""

    event: NotificationEvent
    key: str
    job_id: str | None = None
    seq: int | None = None


@dataclass(frozen=True)
class RuleView:
    """A rule as it was stored. `owner_id`: it is about this user's jobs alone; `project` None: about all."""

    id: str
    events: frozenset[str]
    project: str | None = None
    owner_id: str | None = None
    queued_minutes: int | None = None
    goodput_below: float | None = None
    from_seq: int = 0


def fact_of(event: RecordedEvent) -> Fact | None:
    """The fact that an event records; None: it is no news to anybody."""
    if event.job_id is None:
        return None
    if event.type == "job.loss_not_finite":
        return Fact(NotificationEvent.NAN, f"nan:{event.job_id}:{event.generation}", event.job_id, event.seq)
    if event.type in ("job.closed_up", "job.fell_back"):
        kind: NotificationEvent | None = NotificationEvent.DEGRADED
    elif event.type == "job.state" and event.after is not None and event.before != event.after:
        kind = _ENDS.get(JobState(event.after))
    else:
        kind = None
    return None if kind is None else Fact(kind, f"{kind.value}:{event.seq}", event.job_id, event.seq)


def wants(rule: RuleView, fact: Fact, *, project: str | None, owner_id: str | None) -> bool:
    """Whether a rule asks for a fact of a job of this project and user. Of no job: both are None."""
    if fact.event not in rule.events or (fact.seq is not None and fact.seq <= rule.from_seq):
        return False
    if fact.event in OF_NO_JOB:
        return rule.owner_id is None
    return rule.project in (None, project) and rule.owner_id in (None, owner_id)


def queued_fact(job_id: str, since: datetime) -> Fact:
    """The fact that a job has waited long: once for each time that it began to wait."""
    return Fact(NotificationEvent.QUEUED_LONG, f"queued_long:{job_id}:{since.timestamp():.3f}", job_id)


def shortest_wait(rules: Iterable[RuleView]) -> timedelta | None:
    """The shortest wait that any rule asks for; None: no rule asks."""
    minutes = [rule.queued_minutes for rule in rules if NotificationEvent.QUEUED_LONG in rule.events and rule.queued_minutes]
    return timedelta(minutes=min(minutes)) if minutes else None


def goodput_key(rule_id: str, job_id: str) -> str:
    """The condition that a job's goodput is below the limit of a rule."""
    return f"goodput_low:{rule_id}:{job_id}"


def job_of_goodput(key: str) -> str:
    """The job of such a condition."""
    return key.rpartition(":")[2]


def goodput_is_low(goodput: float, limit: float, *, was_low: bool) -> bool:
    return goodput < (limit + GOODPUT_BACK if was_low else limit)
