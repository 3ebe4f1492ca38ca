"""What is kept, deleting an ended job's data, and a disk that is nearly full."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from pydantic import ValidationError
from sqlalchemy import func, select

from paceline.api.core.context import Services
from paceline.api.core.disk import DiskWatch, watch_of
from paceline.api.errors import ProblemError
from paceline.api.loops.storage import StorageKeeper
from paceline.api.services.storage import rollups
from paceline.api.settings import Settings
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.agent.upload.uploader import Uploader, UploadFailedError  # type: ignore[attr-defined]
from paceline.cluster.protocol import ARTIFACTS_PATH, UPLOAD_PATH, RankKey
from paceline.cluster.states import CheckpointState, JobState
from paceline.db.base import new_id
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.metrics import LogLineRow, MetricRecordRow, MetricRollupRow
from paceline.db.models.nodes import NodeRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories import storage
from paceline.monitoring.points import RankBatch, RankEvent, Upload, UploadReply
from paceline.monitoring.spool import SpoolWriter
from paceline.training.rank_folder import RankFolder
from tests import factories
from tests.conftest import Connect
from tests.factories import START

JOBS = "/api/v1/training/jobs"
STORAGE = "/api/v1/cluster/storage"
GIB = 1 << 30


@dataclass
class Harness:
    """A running job with something stored of it, and its agent's side of the upload door."""

    services: Services
    client: httpx.AsyncClient
    agent: httpx.AsyncClient
    job: JobRow
    sent: int = 0

    async def send(self, steps: int = 20, *, events: list[RankEvent] | None = None) -> httpx.Response:
        first, self.sent = self.sent + 1, self.sent + steps
        batch = RankBatch(
            job_id=self.job.id,
            generation=1,
            rank=0,
            metrics=factories.records(first, steps),
            logs=factories.log_lines(steps, seq=first),
            events=events or [],
        )
        return await self.agent.post(UPLOAD_PATH, content=msgspec.json.encode(Upload(batches=[batch])))

    async def end(self) -> None:
        async with self.services.write() as session:
            job = await session.get(JobRow, self.job.id)
            assert job is not None
            job.state, job.ended_at = JobState.COMPLETED, START

    async def checkpoint(self, **columns: Any) -> CheckpointRow:
        async with self.services.write() as session:
            node_id = (await session.scalars(select(NodeRow.id))).one()
            place = {"job_id": self.job.id, "step": 10, "generation": 1, "node_id": node_id}
            row = CheckpointRow(**place, directory="d", bytes=5, manifest_sha256="", created_at=START, **columns)
            session.add(row)
        return row

    async def delete(self, **params: Any) -> httpx.Response:
        return await self.client.delete(f"{JOBS}/{self.job.id}/data", params=params)

    async def event_types(self) -> list[str]:
        return [event["type"] for event in (await self.client.get(f"{JOBS}/{self.job.id}/events")).json()["items"]]

    async def stored(self) -> int:
        async with self.services.metrics.read() as session:
            tables = (MetricRecordRow, MetricRollupRow, LogLineRow)
            return sum([await session.scalar(select(func.count()).select_from(table)) or 0 for table in tables])

    def disk(self, free: int) -> None:
        """From now on the coordinator sees so much free disk, of 100 GiB."""
        watch = self.services.disk
        watch.folder, watch.usage = self.services.settings.data, lambda _: (100 * GIB, 100 * GIB - free, free)
        watch.look_every_seconds = 0.0


@pytest.fixture
async def harness(services: Services, client: httpx.AsyncClient, connect: Connect) -> AsyncIterator[Harness]:
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    async with connect(credential) as agent:
        harness = Harness(services, client, agent, job)
        assert (await harness.send()).status_code == 200
        yield harness


async def test_the_data_of_an_ended_job_goes_and_the_job_stays(harness: Harness) -> None:
    await harness.end()
    asked = await harness.delete()
    assert (asked.status_code, asked.json()["state"], asked.json()["asked_by"]) == (202, "removing", "admin")
    await StorageKeeper(harness.services, pass_seconds=60.0).step_once(START)
    assert await harness.stored() == 0
    job = (await harness.client.get(f"{JOBS}/{harness.job.id}")).json()
    assert (job["state"], job["data_removal"]["state"]) == ("completed", "removed")
    assert job["data_removal"]["removed_bytes"] > 20 * 250
    told = [
        (event["type"], event["actor"]["name"]) for event in (await harness.client.get(f"{JOBS}/{harness.job.id}/events")).json()["items"]
    ]
    assert told[-2:] == [("job.data_unwanted", "admin"), ("job.data_removed", "coordinator")]
    for part in ("goodput", "performance", "incidents", "artifacts", "logs", "profile"):
        assert (await harness.client.get(f"{JOBS}/{harness.job.id}/{part}")).status_code == 200, part
    assert (await harness.client.get(f"/api/v1/metrics/jobs/{harness.job.id}")).json()["curves"] == []
    assert (await harness.client.get(f"{JOBS}/{harness.job.id}/samples")).json()["code"] == "no_longer_kept"
    again = await harness.delete()
    assert (again.status_code, again.json()["state"]) == (202, "removed")


async def test_what_arrives_after_the_removal_goes_too(harness: Harness) -> None:
    await harness.end()
    await harness.delete()
    keeper = StorageKeeper(harness.services, pass_seconds=60.0)
    await keeper.step_once(START)
    assert (await harness.send()).status_code == 200
    assert await harness.stored() > 0
    for hours in (2, 3):
        await keeper.step_once(START + timedelta(hours=hours))
    assert await harness.stored() == 0


async def test_what_arrives_after_the_removal_goes_too_though_many_jobs_have_more(harness: Harness) -> None:
    await harness.end()
    await harness.delete()
    keeper = StorageKeeper(harness.services, pass_seconds=60.0)
    await keeper.step_once(START)
    async with harness.services.metrics.write() as session:
        counts = {"kind": "points", "rows": 1, "bytes": 1_000_000, "changed_at": START}
        session.add_all(StoredDataRow(job_id=new_id(), **counts) for _ in range(60))
    assert (await harness.send()).status_code == 200
    for hours in (2, 3):
        await keeper.step_once(START + timedelta(hours=hours))
    assert await harness.stored() == 0


async def test_a_removal_goes_on_while_points_wait_for_their_roll_ups(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another refresh is under way, which makes new curves of the points that are left."""
    await harness.end()
    await harness.delete()
    keeper = StorageKeeper(harness.services, pass_seconds=60.0)

    async def met_another(*_: Any) -> bool:
        return False

    with monkeypatch.context() as patched:
        patched.setattr(rollups, "refresh", met_another)
        await keeper.step_once(START)
    assert await harness.event_types() == ["job.data_unwanted"]
    await keeper.step_once(START)
    assert await harness.event_types() == ["job.data_unwanted", "job.data_removed"]
    assert await harness.stored() == 0


async def test_a_job_that_has_not_ended_keeps_its_data(harness: Harness) -> None:
    refused = await harness.delete()
    assert (refused.status_code, refused.json()["code"]) == (409, "job_not_ended")
    assert "digits is running" in refused.json()["detail"]
    unknown = await harness.client.delete(f"{JOBS}/nobody/data")
    assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


async def test_checkpoints_stay_unless_they_are_asked_for_and_no_job_needs_them(harness: Harness) -> None:
    row = await harness.checkpoint(pinned=True)
    await harness.end()
    assert (await harness.delete()).status_code == 202
    refused = await harness.delete(checkpoints=True)
    assert (refused.status_code, refused.json()["code"]) == (409, "checkpoint_in_use")
    assert refused.json()["detail"].endswith(
        "it is pinned. Nothing of its job was deleted: unpin this checkpoint, or delete it by itself, first"
    )
    await harness.client.put(f"/api/v1/checkpoints/{row.id}/unpin")
    assert (await harness.delete(checkpoints=True)).json()["checkpoints"] is True
    async with harness.services.control.read() as session:
        assert await session.scalar(select(CheckpointRow.state)) is CheckpointState.DELETING


async def test_a_viewer_deletes_nothing(harness: Harness, connect: Connect) -> None:
    await harness.end()
    async with harness.services.write() as session:
        _, key = await factories.create_user(session, name="eve", role="viewer")
    async with connect(key) as viewer:
        assert (await viewer.delete(f"{JOBS}/{harness.job.id}/data")).status_code == 403
        assert (await viewer.get(STORAGE)).status_code == 200


async def test_the_storage_page_says_what_is_kept(harness: Harness) -> None:
    document = (await harness.client.get(STORAGE)).json()
    sizes = {each["kind"]: each["rows"] for each in document["kinds"]}
    assert (sizes["points"], sizes["lines"], sizes["traces"]) == (20, 20, 0)
    assert document["stored_bytes"] == sum(each["bytes"] for each in document["kinds"])
    assert document["limit_bytes"] == 20 * GIB
    assert any("PACELINE_KEEP_POINTS_DAYS" in sentence for sentence in document["policy"])
    assert any("the records of deleted checkpoints are kept for" in sentence for sentence in document["policy"])
    (largest,) = document["largest_jobs"]
    assert (largest["name"], largest["state"], largest["ended"]) == ("digits", "running", False)
    assert document["database_bytes"] > 0


async def test_of_jobs_with_as_much_data_the_oldest_are_named(services: Services) -> None:
    """Which of them were left out was chance on PostgreSQL."""
    ids = [new_id() for _ in range(20)]
    async with services.metrics.write() as session:
        await storage.add(session, {(job_id, "points"): (1, 100) for job_id in reversed(ids)}, START)
        assert await storage.largest(session, 10) == [(job_id, 100) for job_id in ids[:10]]


# --- a disk that is nearly full


async def test_on_a_nearly_full_disk_points_and_lines_wait_and_checkpoints_go_on(harness: Harness) -> None:
    harness.disk(GIB)
    refused = await harness.send()
    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (507, "disk_low", "30")
    assert "PACELINE_DISK_LOW" in refused.json()["detail"]
    harness.sent -= 20
    saved = {"directory": f"/c/{harness.job.id}/step-10.g1", "step": 10, "bytes": 5, "manifest_sha256": "a"}
    events = [
        RankEvent(seq=1, time=START.timestamp(), kind="sample", data={"step": 10, "text": "once"}),
        RankEvent(seq=2, time=START.timestamp(), kind="checkpoint_committed", data=saved),
    ]
    answer = await harness.send(events=events)
    assert answer.status_code == 200, answer.text
    (mark,) = msgspec.json.decode(answer.content, type=UploadReply).acknowledged
    assert (mark.metrics, mark.logs, mark.events) == (20, 20, 2)
    assert await harness.event_types() == ["checkpoint.committed", "job.records_refused"]
    harness.disk(50 * GIB)
    harness.sent -= 20
    assert (await harness.send()).status_code == 200
    async with harness.services.metrics.read() as session:
        assert await session.scalar(select(func.count()).select_from(MetricRecordRow)) == 40


async def test_on_a_nearly_full_disk_files_wait_and_everything_says_so(harness: Harness) -> None:
    keeper = StorageKeeper(harness.services, pass_seconds=60.0)
    harness.disk(GIB)
    assert (await harness.agent.post(ARTIFACTS_PATH, content=b"{}")).json()["code"] == "disk_low"
    await keeper.step_once(START)
    document = (await harness.client.get(STORAGE)).json()
    assert (document["disk"]["low"], document["disk"]["low_bytes"]) == (True, 2 * GIB)
    exposition = (await harness.client.get("/metrics")).text
    assert {"paceline_disk_free_bytes 1.073741824e+09", "paceline_disk_low 1.0"} <= set(exposition.splitlines())
    harness.disk(50 * GIB)
    await keeper.step_once(START)
    events = [event["type"] for event in (await harness.client.get("/api/v1/events")).json()["items"]]
    assert events[-2:] == ["cluster.disk_low", "cluster.disk_fine"]


async def test_a_node_keeps_what_a_nearly_full_coordinator_refuses_and_sends_it_later(harness: Harness, tmp_path: Path) -> None:
    key = RankKey(harness.job.id, 1, 0)
    folder = RankFolder(tmp_path / "agent", *key)
    folder.path.mkdir(parents=True)
    spool = SpoolWriter(folder.metrics)
    for record in factories.records(1, 30):
        spool.append(msgspec.json.encode(record))
    spool.close()
    uploader = Uploader(harness.agent, lambda _: None)
    uploader.follow(key, RankSpool(folder, key))
    harness.disk(GIB)
    with pytest.raises(UploadFailedError, match="507"):
        await uploader.finish()
    harness.disk(50 * GIB)
    await uploader.finish()
    assert uploader.backlog() == 0
    async with harness.services.metrics.read() as session:
        assert await session.scalar(select(func.count()).select_from(MetricRecordRow)) == 30


def test_a_real_disk_is_seen(tmp_path: Path) -> None:
    state = DiskWatch(folder=tmp_path, limit=1 << 60).state()
    assert state is not None
    assert 0 < state.free < state.total
    assert state.low


def test_the_watermark_suits_the_disk_and_does_not_flap() -> None:
    free = [3 * GIB]
    watch = DiskWatch(folder=None, usage=lambda _: (100 * GIB, 0, free[0]), look_every_seconds=0.0)
    assert watch.state() is None
    watch.folder = Path()
    lows = []
    for free[0] in (3 * GIB, 2 * GIB - 1, 2 * GIB + 1, 3 * GIB):
        lows.append(watch.is_low)
    assert lows == [False, True, True, False]
    small = DiskWatch(folder=Path(), usage=lambda _: (10 * GIB, 0, GIB))
    assert not small.is_low  # 5 % of a small disk
    assert not DiskWatch(folder=Path(), limit=0, usage=lambda _: (10 * GIB, 0, 0)).is_low


@pytest.mark.parametrize("url", ["", "postgresql://db/paceline"])
def test_the_disk_is_that_of_the_databases_or_of_the_folder_that_is_named(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With PostgreSQL on the same machine nothing was ever refused: its disk filled, and then no state changed any more."""
    monkeypatch.setenv("DATABASE_URL", url)
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "data"))
    assert watch_of(Settings()).folder == (None if url else tmp_path / "data")
    monkeypatch.setenv("PACELINE_DISK_FOLDER", str(tmp_path))
    monkeypatch.setenv("PACELINE_DISK_LOW", str(1 << 60))
    watch = watch_of(Settings())
    assert (watch.folder, watch.is_low) == (tmp_path, True)
    with pytest.raises(ProblemError, match=f"bytes of free disk at {tmp_path}"):
        watch.require_room()
    monkeypatch.setenv("PACELINE_DISK_FOLDER", str(tmp_path / "absent"))
    with pytest.raises(ValidationError, match="does not point to a directory"):
        Settings()
