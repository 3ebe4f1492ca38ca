"""The history keeps why the autoscaler launches no node for a job, and does not fill while the job waits."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.services.nodes.withheld import MOST_TOLD, ToldReasons, store
from paceline.cluster.autoscaling.decisions import Withheld
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow
from tests import factories
from tests.factories import START

FULL = "lab may have 1 node more, and it lacks 2"
SPENT = "lab has used 500 of 500 node-hours of this month"


async def waits(services: Services) -> JobRow:
    async with services.write() as session:
        return await factories.create_job(session)


def held(job: JobRow, reason: str) -> list[Withheld]:
    return [Withheld(job.id, reason, {"lab": reason})]


async def told_of(services: Services, job: JobRow) -> Sequence[tuple[str, datetime]]:
    query = select(EventRow).where(EventRow.type == "autoscaler.withheld", EventRow.job_id == job.id).order_by(EventRow.seq)
    async with services.control.read() as session:
        return [(event.cause, event.time) for event in await session.scalars(query)]


async def test_each_reason_of_a_job_is_in_the_history_also_when_it_holds_no_more(services: Services) -> None:
    job, told = await waits(services), ToldReasons()
    for minute, reason in enumerate((FULL, FULL, SPENT)):
        await store(services, held(job, reason), told, START + timedelta(minutes=minute))
    await store(services, [], told, START + timedelta(minutes=3))
    assert await told_of(services, job) == [(FULL, START), (SPENT, START + timedelta(minutes=2))]
    async with services.control.read() as session:
        (event,) = await session.scalars(select(EventRow).where(EventRow.cause == SPENT))
    assert (event.message, event.data) == (f"no node is launched for the job: {SPENT}", {"pools": {"lab": SPENT}})
    assert event.actor_name == "autoscaler"


async def test_a_job_that_waits_for_days_with_other_numbers_at_each_look_is_told_of_once_a_day(services: Services) -> None:
    job, other, told = await waits(services), await waits(services), ToldReasons()
    for number in range(3 * 24):
        now = START + timedelta(hours=number)
        ends = f"slots for it are expected by {now:%H:%M:%S} UTC, when job {other.id} ends, and a new node of lab takes {number} s"
        await store(services, held(job, f"lab may have {number} nodes more, and it lacks 90" if number % 2 else ends), told, now)
    days = [(time - START) // timedelta(days=1) for _, time in await told_of(services, job)]
    assert days == [0, 0, 1, 1, 2, 2]


async def test_no_job_fills_the_history_whatever_its_reasons_say(services: Services) -> None:
    job, told = await waits(services), ToldReasons()
    for number in range(3 * MOST_TOLD):
        await store(services, held(job, f"the pool {'x' * (number + 1)} rests"), told, START + timedelta(seconds=number))
    assert len(await told_of(services, job)) == MOST_TOLD
    await store(services, held(job, "another day"), told, START + timedelta(days=2))
    assert len(await told_of(services, job)) == MOST_TOLD + 1


async def test_a_job_that_may_start_in_a_moment_is_not_told_of(services: Services) -> None:
    job = await waits(services)
    await store(services, [Withheld(job.id, "it waits for less than 10 s, and may start in a moment")], ToldReasons(), START)
    assert await told_of(services, job) == []
