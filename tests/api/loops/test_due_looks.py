"""Loops that wake up together ask together; whoever asks later gets an answer of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.loops.due_looks import DueLooks
from paceline.api.loops.supervisor import loops_of
from paceline.cluster.states import LaunchState
from paceline.db.models.provisioning import LaunchRow
from paceline.db.repositories.due_work import DueWork
from tests.factories import START
from tests.transactions import asked_here

#: Nothing but the first look at events, from which on they are told.
NOTHING = DueWork(launches=False, experiments=False, analyses=False, deliveries=False, scaling=False, events=True)


async def test_loops_that_ask_at_the_same_moment_cost_one_statement(services: Services) -> None:
    looks = DueLooks(services)
    with asked_here(services.control) as statements:
        found = await asyncio.gather(*(looks.look(START) for _ in range(6)))
        assert len(statements) == 1
        assert found == [NOTHING] * 6
        await looks.look(START)
    assert len(statements) == 2


async def test_who_asks_after_a_look_has_begun_hears_what_is_new_since(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, real, has_read, goes_on = DueLooks(services), services.control.read, asyncio.Event(), asyncio.Event()

    @asynccontextmanager
    async def slow() -> AsyncIterator[AsyncSession]:
        async with real() as session:
            yield session
        has_read.set()
        await goes_on.wait()

    with monkeypatch.context() as patch:
        patch.setattr(services.control, "read", slow)
        first = asyncio.create_task(looks.look(START))
        await has_read.wait()
    async with services.write() as session:
        session.add(launch())
    assert (await looks.look(START)).launches
    goes_on.set()
    assert not (await first).launches


async def test_a_failed_look_fails_those_that_asked_and_no_later_one(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = DueLooks(services)
    with monkeypatch.context() as away:
        away.setattr(services.control, "read", lambda: (_ for _ in ()).throw(OSError("away")))
        results = await asyncio.gather(looks.look(START), looks.look(START), return_exceptions=True)
    assert [str(each) for each in results] == ["away", "away"]
    assert await looks.look(START) == NOTHING


async def test_the_loops_of_an_idle_coordinator_ask_little(services: Services) -> None:
    """Those with an interval of up to 2 s asked ten statements in a turn, most of what an idle coordinator did."""
    loops = [each for each in loops_of(services, reads=None) if each.interval_seconds <= 2.0 and each.name != "rollups"]  # type: ignore[arg-type]
    for _ in range(2):  # the first turns take leases, look at the disk and the like
        with asked_here(services.control) as asked:
            await asyncio.gather(*(each.step_once(START) for each in loops))
    assert 0 < len(asked) <= 3, asked


def launch() -> LaunchRow:
    return LaunchRow(
        id="launch",
        name="node",
        provider="test",
        settings={},
        server="http://127.0.0.1",
        labels={},
        slots=1,
        requested_by="ada",
        state=LaunchState.REQUESTED,
        next_look_at=START,
        created_at=START,
        state_since=START,
    )
