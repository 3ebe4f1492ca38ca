"""Readings of nodes are rolled up every few minutes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.loops.readings import REFRESH_EVERY, ReadingsKeeper
from paceline.api.services.storage import readings
from paceline.db.models.events import EventRow
from paceline.db.models.readings import NodeReadingRollupRow
from paceline.db.repositories.readings import StoredReadings
from tests.api.conftest import count
from tests.factories import START
from tests.readings import store


async def test_readings_are_rolled_up_at_once_after_the_clock_was_set_back(services: Services) -> None:
    """A coordinator that had started a day ahead rolled nothing up for that day, and pages had no newer readings."""
    keeper = ReadingsKeeper(services)
    await keeper.step_once(START + timedelta(days=1))
    await store(services, "node", START.timestamp(), {"host": {"load_1m": [1.0]}})
    await keeper.step_once(START)
    made = await count(services, NodeReadingRollupRow)
    assert made > 0
    await store(services, "node", START.timestamp() + 86_400, {"host": {"load_1m": [1.0]}})
    await keeper.step_once(START + REFRESH_EVERY / 2)
    assert await count(services, NodeReadingRollupRow) == made  # not due yet
    await keeper.step_once(START + REFRESH_EVERY)
    assert await count(services, NodeReadingRollupRow) > made


async def test_a_node_whose_readings_cannot_be_rolled_up_keeps_no_other_from_its_turn(
    services: Services, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reading of any node behind it was rolled up, and so none of theirs was ever deleted."""
    caplog.set_level("CRITICAL")
    for node in ("bad", "good"):
        await store(services, node, START.timestamp(), {"host": {"load_1m": [1.0]}})
    keeper = ReadingsKeeper(services)
    with monkeypatch.context() as patch:
        patch.setattr(readings, "roll_up_rows", raising_for("bad"))
        await keeper.step_once(START)
        assert await rolled_up(services) == {"good"}
        await keeper.step_once(START + timedelta(seconds=30))
    async with services.control.read() as session:
        (event,) = (await session.scalars(select(EventRow).where(EventRow.type == "node.held_up"))).all()
    assert (event.node_id, services.troubles.held_up("node")) == ("bad", 1)
    assert event.message.startswith("held up: cannot roll its readings up: ")
    await keeper.step_once(START + timedelta(seconds=60))  # well before the others are due
    assert await rolled_up(services) == {"bad", "good"}
    assert services.troubles.held_up("node") == 0


def raising_for(node_id: str) -> Callable[[Sequence[StoredReadings]], object]:
    def roll_up_rows(rows: Sequence[StoredReadings]) -> object:
        if rows[0].node_id == node_id:
            raise RuntimeError("not this one")
        return real(rows)

    real = readings.roll_up_rows
    return roll_up_rows


async def rolled_up(services: Services) -> set[str]:
    async with services.metrics.read() as session:
        return set(await session.scalars(select(NodeReadingRollupRow.node_id)))
