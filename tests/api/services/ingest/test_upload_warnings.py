"""What an agent could not send, and what a user logs too much of: told once, at no cost to the trainer."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.services.ingest import upload_warnings
from paceline.api.services.ingest.upload_warnings import Remembered
from paceline.cluster.agent.upload.records import note_of
from paceline.db.models.events import EventRow
from paceline.db.models.metrics import MetricRecordRow
from paceline.monitoring.points import MetricRecord
from tests import factories
from tests.api.conftest import Agent, count


async def test_a_note_of_an_agent_takes_its_number_and_is_told_once(agent: Agent, services: Services) -> None:
    notes = [note_of(MetricRecord, seq, "Expected `int`, got `float` - at `$.step`", b'{"step":0.5') for seq in (2, 4)]
    first, third, fifth = (msgspec.structs.replace(record, seq=seq) for seq, record in zip((1, 3, 5), factories.records(1, 3), strict=True))
    batch = agent.batch(metrics=[first, notes[0], third, notes[1], fifth])
    for _ in range(2):
        (mark,) = await agent.upload(batch)
        assert mark.metrics == 5
    assert await count(services, MetricRecordRow) == 3
    async with services.control.read() as session:
        (event,) = await session.scalars(select(EventRow).where(EventRow.job_id == agent.job_id))
    assert event.type == "job.records_refused"
    assert (event.data["count"], event.data["example"]) == (2, 'Expected `int`, got `float` - at `$.step`: {"step":0.5')


async def test_a_users_thousand_names_leave_room_for_the_trainers_loss(agent: Agent, services: Services) -> None:
    user = MetricRecord(seq=1, step=1, time=1.0, values={f"w{number}": 1.0 for number in range(1_000)})
    await agent.upload(agent.batch(metrics=[user]))
    trainer = MetricRecord(seq=2, step=1, time=1.0, values={"loss": 0.5, "one_too_many": 1.0})
    await agent.upload(agent.batch(metrics=[trainer]))
    async with services.metrics.read() as session:
        values = await session.scalar(select(MetricRecordRow.values).order_by(MetricRecordRow.seq.desc()).limit(1))
    assert msgspec.json.decode(values or "") == {"loss": 0.5}


def test_what_is_remembered_of_warnings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_warnings, "MAX_REMEMBERED", 3)
    known = Remembered()
    for number in range(10):
        known.note(number, float(number))
    assert len(known) == 3
    assert [known.when(number) for number in (6, 7, 8, 9)] == [None, 7.0, 8.0, 9.0]
