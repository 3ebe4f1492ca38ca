"""One job or node that raises holds up no other: it is told of once, and tried again later."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import httpx
import pytest
from sqlalchemy import select, update

from paceline.api.core import troubles
from paceline.api.core.context import Services
from paceline.api.core.troubles import MANY_FAILURES, Subject
from paceline.api.loops import quiet_scripts, retention, scheduler
from paceline.api.loops.lease_loop import LeaseLoop
from paceline.api.loops.nodes import NodeWatch
from paceline.api.loops.placing import PlacementMemory
from paceline.api.services.lifecycle.isolation import MOST_TOGETHER, Inspection, PhaseTurns, each_phase
from paceline.api.services.scheduling.job_snapshots import JobSnapshot
from paceline.cluster.states import JobState, NodeState
from paceline.db.errors import DatabaseBusyError
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.monitoring.backoff import Backoff
from tests import factories
from tests.factories import START

SECOND, LATER = timedelta(seconds=1), timedelta(minutes=1)


async def told(services: Services, type: str) -> list[EventRow]:
    async with services.control.read() as session:
        return list(await session.scalars(select(EventRow).where(EventRow.type == type).order_by(EventRow.seq)))


async def state_of(services: Services, job: JobRow) -> JobState:
    async with services.control.read() as session:
        row = await job_rows.get(session, job.id)
    assert row is not None
    return row.state


async def test_a_job_that_raises_is_told_once_and_the_others_are_placed(
    services: Services, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session, slots=4)
        bad = await factories.create_running_job(session, node)
        good = await factories.create_job(session)
    was = scheduler._carry_out
    wrong = {"is": "2"}

    async def carry_out(session: object, known: JobSnapshot, *rest: object) -> None:
        if known.job.id == bad.id:
            raise KeyError(wrong["is"])
        await was(session, known, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(scheduler, "_carry_out", carry_out)
    async with services.write() as session:
        await session.execute(JobRow.__table__.update().where(JobRow.id == bad.id).values(desired="cancel"))  # type: ignore[attr-defined]
    with caplog.at_level(logging.CRITICAL):
        for second in range(3):
            await scheduler.step_once(services, START + second * SECOND)
    assert await state_of(services, good) is JobState.STARTING
    (event,) = await told(services, "job.held_up")
    assert (event.job_id, event.cause) == (bad.id, "KeyError: '2'")
    assert 'paceline_held_up{kind="job"} 1.0' in (await client.get("/metrics")).text
    wrong["is"] = "3"
    with caplog.at_level(logging.CRITICAL):
        await scheduler.step_once(services, START + LATER)
    assert [each.cause for each in await told(services, "job.held_up")] == ["KeyError: '2'", "KeyError: '3'"]
    monkeypatch.setattr(scheduler, "_carry_out", was)
    await scheduler.step_once(services, START + 2 * LATER)
    assert await state_of(services, bad) is JobState.STOPPING
    assert services.troubles.held_up("job") == 0


async def test_what_raised_waits_longer_each_time_and_is_tried_at_once_when_its_row_changes(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(troubles, "Backoff", partial(Backoff, fraction=lambda: 1.0))
    tries: list[int] = []

    def work(second: int) -> None:
        tries.append(second)
        raise RuntimeError("planned")

    with caplog.at_level(logging.CRITICAL):
        for second in range(60):
            await PhaseTurns(services, "do it", START + second * SECOND).look(Subject("job", "j", 1), lambda second=second: work(second))  # type: ignore[misc]
        assert tries == [0, 1, 3, 7, 15, 31, 53]
        await PhaseTurns(services, "do it", START + 60 * SECOND).look(Subject("job", "j", 2), lambda: work(60))
    assert tries[-1] == 60


async def test_many_share_a_turn_and_one_that_raises_has_its_own_from_then_on(services: Services, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[list[str]] = []

    async def work(items: Sequence[str]) -> int:
        calls.append(list(items))
        if "bad" in items:
            raise RuntimeError("planned")
        return len(items)

    async def take(second: int, names: Sequence[str]) -> int:
        calls.clear()
        return await PhaseTurns(services, "do it", START + second * SECOND).take_together(names, lambda name: Subject("job", name), work)

    with caplog.at_level(logging.CRITICAL):
        assert await take(0, ["a", "bad", "b"]) == 2
        assert calls == [["a", "bad", "b"], ["a"], ["bad"], ["b"]]
        assert services.troubles.held_up("job") == 1
        assert await take(0, ["a", "bad", "b"]) == 2
        assert calls == [["a", "b"]], "it is not due yet"
        assert await take(60, ["a", "bad", "b"]) == 2
        assert calls == [["bad"], ["a", "b"]], "it costs the others nothing any more"
    names = [str(number) for number in range(MOST_TOGETHER + 1)]
    assert await take(0, names) == len(names)
    assert [len(group) for group in calls] == [MOST_TOGETHER, 1]


async def test_a_group_that_meets_a_busy_database_is_not_tried_one_by_one(services: Services) -> None:
    calls: list[Sequence[str]] = []

    async def busy(items: Sequence[str]) -> int:
        calls.append(items)
        raise DatabaseBusyError("another transaction")

    with pytest.raises(DatabaseBusyError):
        await PhaseTurns(services, "do it", START).take_together(["a", "b"], lambda name: Subject("job", name), busy)
    assert len(calls) == 1


def test_a_look_that_raises_asks_for_a_turn_and_one_that_finds_nothing_ends_a_trouble(services: Services) -> None:
    turns, subject = PhaseTurns(services, "do it", START), Subject("job", "j")

    def fail() -> int:
        raise RuntimeError("planned")

    assert turns.peek(subject, fail) == Inspection(True)
    assert turns.peek(subject, lambda: 3) == Inspection(True, 3)
    services.troubles.note("do it", subject, "planned", START - LATER)
    assert turns.peek(subject, lambda: 3) == Inspection(True, 3)
    assert services.troubles.held_up("job") == 1, "only the turn itself shows whether it is over"
    assert turns.peek(subject, lambda: None) == Inspection(False)
    assert services.troubles.held_up("job") == 0


async def test_a_database_that_is_away_is_no_jobs_fault(services: Services) -> None:
    def busy() -> None:
        raise DatabaseBusyError("another transaction")

    with pytest.raises(DatabaseBusyError):
        await PhaseTurns(services, "do it", START).look(Subject("job", "j"), busy)
    assert services.troubles.held_up("job") == 0


async def test_a_node_that_raises_keeps_no_other_from_being_lost(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from paceline.api.loops import nodes

    async with services.write() as session:
        bad, _ = await factories.create_node(session, name="a")
        await factories.create_node(session, name="b")
    was = nodes._carry_out

    async def fail_on_node(session: object, node: NodeRow, *rest: object) -> None:
        if node.id == bad.id:
            raise ValueError("no such rule")
        await was(session, node, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(nodes, "_carry_out", fail_on_node)
    watch = NodeWatch(services)
    with caplog.at_level(logging.CRITICAL):
        for second in range(60):
            await watch.step_once(START + second * SECOND)
    async with services.control.read() as session:
        found = {row.name: row.state for row in await node_rows.present(session)}
    assert found == {"a": NodeState.READY, "b": NodeState.LOST}
    assert [event.node_id for event in await told(services, "node.held_up")] == [bad.id]


async def test_a_recovering_job_that_raises_keeps_no_other_from_being_placed(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with services.write() as session:
        await factories.create_node(session)
        bad = await factories.create_job(session, state=JobState.RECOVERING)
        good = await factories.create_job(session)
    was = JobSnapshot.wants_slots

    def wants_slots(known: JobSnapshot, now: datetime) -> bool:
        if known.job.id == bad.id:
            raise KeyError("rank")
        return was(known, now)

    monkeypatch.setattr(JobSnapshot, "wants_slots", wants_slots)
    placing = PlacementMemory(services)
    with caplog.at_level(logging.CRITICAL):
        for second in range(3):
            await placing.step_once(START + second * SECOND)
    assert await state_of(services, good) is JobState.STARTING
    assert [event.job_id for event in await told(services, "job.held_up")] == [bad.id]


async def test_a_quiet_job_that_raises_keeps_no_other_from_being_looked_at(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked_at: list[str] = []
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        bad, good = [await factories.create_running_job(session, node) for _ in range(2)]
        await session.execute(update(RankRow).values(quiet_since=START))

    async def next_action(_: object, known: JobSnapshot, __: object) -> None:
        looked_at.append(known.job.id)
        if known.job.id == bad.id:
            raise KeyError("stack")

    monkeypatch.setattr(quiet_scripts, "_next", next_action)
    with caplog.at_level(logging.CRITICAL):
        for second in range(3):
            await quiet_scripts.step_once(services, START + second * SECOND)
    assert looked_at.count(good.id) == 3
    assert [event.job_id for event in await told(services, "job.held_up")] == [bad.id]


async def test_retention_goes_on_behind_a_job_that_raises(
    services: Services, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked_at: list[str] = []
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        jobs = [await factories.create_running_job(session, node, generation=number) for number in (1, 1)]
        for job in jobs:
            session.add(factories.checkpoint(job, node, step=1))

    async def superfluous_of(session: object, job_id: str) -> list[str]:
        looked_at.append(job_id)
        if job_id == jobs[0].id:
            raise KeyError("checkpoint")
        return []

    monkeypatch.setattr(retention, "_superfluous_of", superfluous_of)
    loop = retention.Retention(services)
    with caplog.at_level(logging.CRITICAL):
        for minute in range(3):
            await loop.step_once(START + minute * LATER)
    assert looked_at.count(jobs[1].id) == 1, "nothing has changed since"
    assert looked_at.count(jobs[0].id) == 3
    assert len(await told(services, "job.held_up")) == 1


async def test_every_part_of_a_step_has_its_turn() -> None:
    taken: list[str] = []

    async def fail(now: object) -> None:
        taken.append("fail")
        raise RuntimeError("planned")

    async def work(now: object) -> None:
        taken.append("work")

    with pytest.raises(RuntimeError, match="planned"):
        await each_phase([fail, work], START)
    with pytest.raises(ExceptionGroup, match="2 of 3 parts"):
        await each_phase([fail, work, fail], START)
    assert taken == ["fail", "work", "fail", "work", "fail"]


async def test_readyz_and_metrics_tell_of_a_loop_that_keeps_failing(
    services: Services, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    outcomes: list[Exception | None] = [RuntimeError("planned")] * MANY_FAILURES + [None]

    async def step(now: object) -> None:
        if outcome := outcomes.pop(0):
            raise outcome

    loop = LeaseLoop("scheduler", services, step, 1.0)
    with caplog.at_level(logging.CRITICAL):
        for _ in range(MANY_FAILURES):
            assert (await client.get("/readyz")).json() == {"status": "ready"}
            await loop._take_turn()
    assert (await client.get("/readyz")).json() == {"status": "degraded", "failing": "scheduler"}
    assert f'paceline_loop_failures{{loop="scheduler"}} {MANY_FAILURES}.0' in (await client.get("/metrics")).text
    await loop._take_turn()
    assert (await client.get("/readyz")).json() == {"status": "ready"}


def test_what_is_held_up_is_tried_again_though_the_clock_was_set_back() -> None:
    known, subject = troubles.Troubles(), Subject("job", "j")
    known.note("do it", subject, "planned", START)
    assert not known.is_due("do it", subject, START)
    assert known.is_due("do it", subject, START - timedelta(hours=2))
