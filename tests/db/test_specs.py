"""A job's spec as it leaves the database: typed once, and its document whatever the schema says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.loops.scheduler import Scheduler
from paceline.cluster.states import JobState
from paceline.db.models.jobs import JobRow
from paceline.training.spec import stored as stored_spec
from paceline.training.spec.stored import StoredSpec
from tests import factories
from tests.factories import START


async def test_a_spec_comes_back_as_it_was_stored(services: Services) -> None:
    spec = factories.job_spec(name="kept", labels={"team": "a"})
    async with services.write() as session:
        job = await factories.create_job(session, spec=spec)
    async with services.control.read() as session:
        stored = (await session.execute(select(JobRow.spec).where(JobRow.id == job.id))).scalar_one()
    assert (stored, stored.readable, stored.why_unreadable) == (StoredSpec(spec.model_dump(mode="json")), spec, None)


async def test_a_tick_looks_at_the_spec_of_a_row_once_and_reads_none_anew(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session, slots=1)
        await factories.create_running_job(session, node, spec=factories.job_spec(name="runs"))
        for number in range(3):
            await factories.create_job(session, spec=factories.job_spec(name=f"waits-{number}"), state=JobState.QUEUED)
    seen: list[StoredSpec] = []
    made, parse = StoredSpec.__init__, stored_spec.parse_document
    looked_up: list[str] = []

    def counted_row(self: StoredSpec, document: dict[str, Any]) -> None:
        made(self, document)
        seen.append(self)

    def counted_look(document: str) -> object:
        looked_up.append(document)
        return parse(document)

    scheduler = Scheduler(services)
    await scheduler.step_once(START)
    monkeypatch.setattr(StoredSpec, "__init__", counted_row)
    monkeypatch.setattr(stored_spec, "parse_document", counted_look)
    before = parse.cache_info().misses
    await scheduler.step_once(START + timedelta(seconds=1))
    assert bool(seen) is not services.control.is_sqlite, "the scheduler has read its jobs; equal text is the same spec"
    assert len(looked_up) <= len(seen)
    assert parse.cache_info().misses == before
