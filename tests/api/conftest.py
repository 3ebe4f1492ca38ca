"""One node that holds the ranks of one running job, and its side of the upload door."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import func, select

from paceline.api.core.context import Services
from paceline.cluster.protocol import UPLOAD_PATH
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.points import HighWater, RankBatch, Upload, UploadReply
from tests import factories
from tests.conftest import Connect


@dataclass(frozen=True)
class Agent:
    """One node's side of the upload door."""

    client: httpx.AsyncClient
    job_id: str

    async def send(self, *batches: RankBatch) -> httpx.Response:
        return await self.client.post(UPLOAD_PATH, content=msgspec.json.encode(Upload(batches=list(batches))))

    async def upload(self, *batches: RankBatch) -> list[HighWater]:
        answer = await self.send(*batches)
        assert answer.status_code == 200, answer.text
        return msgspec.json.decode(answer.content, type=UploadReply).acknowledged

    def batch(self, **changes: Any) -> RankBatch:
        document: dict[str, Any] = {"job_id": self.job_id, "generation": 1, "rank": 0}
        return RankBatch(**(document | changes))


@pytest.fixture
async def node(services: Services) -> tuple[NodeRow, str]:
    async with services.write() as session:
        return await factories.create_node(session)


@pytest.fixture
async def agent(services: Services, connect: Connect, node: tuple[NodeRow, str]) -> AsyncIterator[Agent]:
    async with services.write() as session:
        job = await factories.create_running_job(session, node[0])
    async with connect(node[1]) as client:
        yield Agent(client, job.id)


async def count(services: Services, table: Any) -> int:
    async with services.metrics.read() as session:
        return (await session.scalar(select(func.count()).select_from(table))) or 0
