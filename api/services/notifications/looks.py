"""Looks for facts that no event records: a job that waits long, goodput that is lost, a disk that fills up.

Each is told once for each time that it begins. Goodput and the disk have a row while they last, which goes when they are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

from paceline.api.core.context import Services
from paceline.api.core.troubles import Subject
from paceline.api.errors import ProblemError
from paceline.api.services.history.heavy_reads import HeavyReads
from paceline.api.services.history.history_process import HistoryQuestion
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.api.services.notifications import facts, job_messages
from paceline.api.services.notifications.facts import ActiveRule
from paceline.api.services.notifications.messages import Notification
from paceline.cluster.history.notifications import (
    GOODPUT_AFTER,
    Fact,
    NotificationEvent,
    goodput_is_low,
    goodput_key,
    job_of_goodput,
    queued_fact,
    shortest_wait,
    wants,
)
from paceline.cluster.states import TERMINAL_JOB_STATES
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import notifications as rows

DISK = "disk_low"
#: Waiting jobs that one look considers, and those that it tells of: the others have their turn in the next one.
MOST_WAITING, JOBS_TOLD_AT_ONCE = 5_000, 200
#: Running jobs whose goodput one look computes; the others have their turn in the next ones.
JOBS_IN_LOOK = 20


async def at_queue(services: Services, now: datetime) -> None:
    """Tell of jobs that have waited longer than a rule allows, the longest wait first."""
    async with services.control.read() as session:
        active = await facts.active_rules(session)
        wait = shortest_wait(each.rule for each in active)
        waiting = [] if wait is None else await rows.queued_before(session, now - wait, MOST_WAITING)
        keys = {job.id: queued_fact(job.id, job.since) for job in waiting}
        told = await rows.told_facts(session, [fact.key for fact in keys.values()])
        due_of = {job.id: _due(active, keys[job.id], job, told, now) for job in waiting}
        jobs = await job_rows.by_id(session, [job_id for job_id, due in due_of.items() if due][:JOBS_TOLD_AT_ONCE])
    new = []
    for job in sorted(jobs.values(), key=lambda job: (job.state_since, job.id)):
        fact, due, words = keys[job.id], due_of[job.id], job_messages.waiting_words(job, now)
        message = partial(_job_message, fact.event, job, words, now)
        new += facts.deliveries_of(due, fact, job, message, services.settings.public_url, now)
    if new:
        async with services.write() as session:
            await facts.store(session, new)


def _due(
    active: Sequence[ActiveRule], fact: Fact, job: rows.QueuedJob, told: set[tuple[str | None, str]], now: datetime
) -> list[ActiveRule]:
    """The rules whose patience is over, and that have not told it."""
    asking = [each for each in active if wants(each.rule, fact, project=job.project, owner_id=job.owner_id)]
    new = [each for each in asking if (each.rule.id, fact.key) not in told]
    return [each for each in new if now - job.since >= timedelta(minutes=each.rule.queued_minutes or 0)]


def _job_message(event: NotificationEvent, job: JobRow, what: str, now: datetime, base: str) -> Notification:
    return job_messages.of_job(event, job, what, base, now)


async def at_disk(services: Services, now: datetime) -> None:
    """Tell that the coordinator's disk is nearly full, until it is not any more."""
    disk = services.disk.state()
    if disk is None:
        return
    async with services.control.read() as session:
        known = DISK in await rows.conditions(session)
    if disk.low == known:
        return
    async with services.write() as session:
        if not disk.low:
            await rows.end_conditions(session, [DISK])
        elif await rows.begin_condition(session, DISK, now):
            fact = Fact(NotificationEvent.DISK_LOW, f"{DISK}:{now.timestamp():.3f}")
            active = await facts.active_rules(session)
            new = facts.deliveries_of(
                active, fact, None, lambda base: job_messages.of_disk(disk, base, now), services.settings.public_url, now
            )
            await facts.store(session, new)


class GoodputLook:
    """Looks at some running jobs after others. It remembers where it is; all that it tells is in rows."""

    def __init__(self, services: Services, reads: HeavyReads) -> None:
        self.services = services
        self.reads = reads
        self._after = ""

    async def look(self, now: datetime) -> None:
        """Compute the goodput of the next jobs that rules ask about."""
        async with self.services.control.read() as session:
            active = [each for each in await facts.active_rules(session) if NotificationEvent.GOODPUT_LOW in each.rule.events]
            running = await job_rows.running(session) if active else []
            known = {key for key in await rows.conditions(session) if key != DISK}
            told = await job_rows.by_id(session, {job_of_goodput(key) for key in known})
        asked = {
            job.id: (job, rules)
            for job in running
            if job.started_at is not None and now - job.started_at >= GOODPUT_AFTER and (rules := _asking(active, job))
        }
        unended = [job for job in told.values() if job.state not in TERMINAL_JOB_STATES]  # goodput does not come back in a pause
        live = {goodput_key(each.rule.id, job.id) for job in unended for each in _asking(active, job)}
        if over := known - live:
            async with self.services.write() as session:
                await rows.end_conditions(session, over)
        turns = PhaseTurns(self.services, "compute its goodput for notifications", now)
        self.services.troubles.forget_all_but(turns.task, asked)
        for job_id in self._turn(sorted(asked)):
            if await turns.take(Subject("job", job_id), partial(self._look_at, *asked[job_id], known, now)) is False:
                return

    def _turn(self, job_ids: Sequence[str]) -> Sequence[str]:
        """The next jobs, beginning anew after the last one."""
        later = [each for each in job_ids if each > self._after][:JOBS_IN_LOOK]
        self._after = later[-1] if len(later) == JOBS_IN_LOOK else ""
        return later

    async def _look_at(self, job: JobRow, rules: Sequence[ActiveRule], known: set[str], now: datetime) -> bool:
        """Look at one job. Returns False where users' questions take all turns at reading: they come first, and the next look tries again."""
        try:
            answer = await self.reads.get(HistoryQuestion("goodput", (job.id,)), now)
        except ProblemError as error:
            if error.code != "busy":
                raise
            return False
        if answer.goodput is None:
            return True
        begun, over = list[ActiveRule](), list[str]()
        for each in rules:
            key = goodput_key(each.rule.id, job.id)
            low = goodput_is_low(answer.goodput, each.rule.goodput_below or 0.0, was_low=key in known)
            if low and key not in known:
                begun.append(each)
            elif not low and key in known:
                over.append(key)
        if not begun and not over:
            return True
        async with self.services.write() as session:
            await rows.end_conditions(session, over)
            told = [each for each in begun if await rows.begin_condition(session, goodput_key(each.rule.id, job.id), now)]
            fact = Fact(NotificationEvent.GOODPUT_LOW, f"goodput_low:{job.id}:{now.timestamp():.3f}", job.id)
            message = partial(_job_message, fact.event, job, answer.text, now)
            await facts.store(session, facts.deliveries_of(told, fact, job, message, self.services.settings.public_url, now))
        return True


def _asking(active: Sequence[ActiveRule], job: JobRow) -> list[ActiveRule]:
    fact = Fact(NotificationEvent.GOODPUT_LOW, "", job.id)
    return [each for each in active if wants(each.rule, fact, project=job.project, owner_id=job.created_by_id)]
