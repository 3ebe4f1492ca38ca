"""A job whose rank leaves files, the agent's own uploader, and the real app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.cluster.agent.upload.files import FileUploader
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.training.rank_folder import RankFolder
from tests import factories
from tests.conftest import Connect


@dataclass
class FilesHarness:
    """A running job of two ranks on one node, whose folders lie in `data`."""

    client: httpx.AsyncClient
    agent: httpx.AsyncClient
    services: Services
    node: NodeRow
    job: JobRow
    data: Path

    @property
    def url(self) -> str:
        return f"/api/v1/training/jobs/{self.job.id}/files"

    def folder(self, rank: int = 0, generation: int = 1) -> Path:
        folder = RankFolder(self.data, self.job.id, generation, rank).files
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def leave(self, name: str, content: bytes, rank: int = 0) -> Path:
        file = self.folder(rank) / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def uploader(self) -> FileUploader:
        return FileUploader(self.agent, JobFolders(self.data / "jobs"))

    async def upload(self) -> None:
        """As a new agent that finds the files at rest."""
        await self.uploader().finish()

    async def page(self, prefix: str = "", **query: Any) -> Any:
        answer = await self.client.get(self.url, params={"prefix": prefix, **query})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def paths(self) -> list[str]:
        """Every file of rank 0 that lies directly in its folder."""
        return [item["path"] for item in (await self.page("rank0"))["items"]]

    async def content(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"{self.url}/content", params={"path": path}, headers=headers)

    async def events(self, type: str) -> list[dict[str, Any]]:
        answer = await self.client.get(f"/api/v1/training/jobs/{self.job.id}/events")
        return [event for event in answer.json()["items"] if event["type"] == type]


@pytest.fixture
async def left(services: Services, client: httpx.AsyncClient, connect: Connect, tmp_path: Path) -> AsyncIterator[FilesHarness]:
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        spec = factories.job_spec(parallelism={"strategy": "ddp"}, resources={"nodes": 2})
        job = await factories.create_running_job(session, node, spec=spec)
    async with connect(credential) as agent:
        yield FilesHarness(client, agent, services, node, job, tmp_path / "agent")
