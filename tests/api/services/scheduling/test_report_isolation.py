"""What one rank leaves behind, and no row can hold, keeps no other rank of its node from being reported."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.services.scheduling.node_writer import NodeWriter
from paceline.cluster.protocol import Observed, ObservedAssignment, ObservedRank
from paceline.cluster.states import RankState
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import RankRow
from paceline.db.models.nodes import NodeRow
from paceline.training.link import FailureReport
from tests import factories

ENDED: dict[str, Any] = {"state": RankState.EXITED, "outcome": "failed", "exit_code": 1, "drained": True}
HOSTILE: dict[str, dict[str, Any]] = {
    "text that PostgreSQL refuses": ENDED | {"failure": FailureReport(kind="exception", rank=0, message="a\0b")},
    "a pid that no column holds": ENDED | {"pid": 2**70},
    "quiet since before the calendar began": {"state": RankState.RUNNING, "quiet_since": -1e11},
    "an age beyond all times": {"state": RankState.RUNNING, "progress_age": 1e300},
}


async def members(services: Services, job_id: str) -> list[RankRow]:
    async with services.control.read() as session:
        return list(await session.scalars(select(RankRow).where(RankRow.job_id == job_id).order_by(RankRow.rank)))


async def reports_of_trouble(services: Services) -> list[EventRow]:
    async with services.control.read() as session:
        return list(await session.scalars(select(EventRow).where(EventRow.type == "job.held_up")))


@pytest.mark.parametrize("what", HOSTILE)
async def test_one_rank_whose_report_cannot_be_stored_holds_up_no_other(app: FastAPI, services: Services, what: str) -> None:
    """The channel was closed as if the database were away, and each report after it as well: every job on the node ran for ever."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        hostile = await factories.create_running_job(session, node, world_size=2)
        healthy = await factories.create_running_job(session, node)
        node_row = await session.get_one(NodeRow, node.id)
        node_row.channel_id = "channel"
    completed: dict[str, Any] = {"state": RankState.EXITED, "outcome": "completed", "exit_code": 0, "drained": True}
    assignments = (
        ObservedAssignment(
            job_id=hostile.id, generation=1, ranks=(ObservedRank(rank=0, slot=0, **HOSTILE[what]), ObservedRank(rank=1, slot=1, **ENDED))
        ),
        ObservedAssignment(job_id=healthy.id, generation=1, ranks=(ObservedRank(rank=0, slot=2, **completed),)),
    )
    writer: NodeWriter = app.state.node_writer
    for _ in range(2):
        assert await writer.report(node.id, "channel", Observed(revision=0, assignments=assignments), factories.START)
    (rank,) = await members(services, healthy.id)
    assert (rank.state, rank.outcome) == (RankState.EXITED, "completed")
    first, mate = await members(services, hostile.id)
    assert (first.state, mate.state) == (HOSTILE[what]["state"], RankState.EXITED)
    is_stored = app.state.services.control.engine.dialect.name == "sqlite" and "PostgreSQL" in what
    assert [event.job_id for event in await reports_of_trouble(services)] == ([] if is_stored else [hostile.id])
    assert not await writer.report(node.id, "an earlier channel", Observed(revision=0, assignments=assignments), factories.START)
