"""From a rank's folder to whoever asked: the agent's own uploader against the real app."""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.services.artifacts import media_offers, stored_artifacts
from paceline.api.services.scheduling.assignments import desired_of
from paceline.cluster.agent.upload.artifacts import ArtifactUploader
from paceline.cluster.agent.upload.job_folders import JobFolders
from paceline.cluster.agent.upload.transfer import CoordinatorAwayError
from paceline.cluster.protocol import ARTIFACTS_PATH, Profile
from paceline.cluster.states import JobState
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import aged
from paceline.db.repositories import artifacts as rows
from paceline.db.repositories import nodes as node_rows
from paceline.monitoring.artifacts import CHUNK_BYTES, Offer, RankArtifact, Received, note_of
from paceline.monitoring.files import write_durably
from paceline.monitoring.media import MediaLabel
from paceline.training.rank_folder import RankFolder
from tests import factories
from tests.conftest import Connect
from tests.factories import START

JOBS = "/api/v1/training/jobs"


@dataclass
class Harness:
    """A running job of two ranks on one node, whose folders lie in `data`."""

    client: httpx.AsyncClient
    agent: httpx.AsyncClient
    services: Services
    node: NodeRow
    job: JobRow
    data: Path

    def leave(self, content: bytes = b"", *, rank: int = 0, name: str = "trace.json.gz", **fields: Any) -> Path:
        """As a rank leaves a file; returns its note."""
        folder = RankFolder(self.data, self.job.id, 1, rank).artifacts
        folder.mkdir(parents=True, exist_ok=True)
        known: dict[str, Any] = {"name": name, "kind": "trace", "first_step": 5, "last_step": 7, "time": 1.0}
        if content:
            known |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        artifact = RankArtifact(**known | fields)
        if content:
            (folder / name).write_bytes(content)
        write_durably(note_of(folder / name), msgspec.json.encode(artifact))
        return note_of(folder / name)

    async def upload(self) -> None:
        await ArtifactUploader(self.agent, JobFolders(self.data / "jobs")).upload_all()

    async def artifacts(self) -> list[dict[str, Any]]:
        answer = await self.client.get(f"{JOBS}/{self.job.id}/artifacts")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return found

    async def ask(self, **order: Any) -> httpx.Response:
        return await self.client.post(f"{JOBS}/{self.job.id}/profile", json=order)

    async def request(self) -> Any:
        return (await self.client.get(f"{JOBS}/{self.job.id}/profile")).json()

    async def told(self) -> Profile | None:
        """What the node is told now."""
        async with self.services.control.read() as session:
            node = await node_rows.get(session, self.node.id)
            assert node is not None
            (assignment,) = (await desired_of(session, [node]))[node.id].assignments
            return assignment.profile

    async def event_types(self) -> list[str]:
        return [event["type"] for event in (await self.client.get(f"{JOBS}/{self.job.id}/events")).json()["items"]]


@pytest.fixture
async def harness(services: Services, client: httpx.AsyncClient, connect: Connect, tmp_path: Path) -> AsyncIterator[Harness]:
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        spec = factories.job_spec(parallelism={"strategy": "ddp"}, resources={"nodes": 2})
        job = await factories.create_running_job(session, node, spec=spec)
    async with connect(credential) as agent:
        yield Harness(client, agent, services, node, job, tmp_path / "agent")


async def test_a_file_of_several_chunks_arrives_whole_and_leaves_the_node(harness: Harness) -> None:
    content = os.urandom(2 * CHUNK_BYTES + 17)
    note = harness.leave(content)
    await harness.upload()
    (found,) = await harness.artifacts()
    assert (found["state"], found["bytes"], found["rank"], found["first_step"], found["last_step"]) == ("ready", len(content), 0, 5, 7)
    answer = await harness.client.get(f"{JOBS}/{harness.job.id}/artifacts/{found['id']}/content")
    assert answer.content == content
    assert answer.headers["content-disposition"] == 'attachment; filename="digits-g1-rank0-steps5-7.json.gz"'
    assert list(note.parent.iterdir()) == []
    assert "job.traced" in await harness.event_types()


async def test_what_is_sent_again_is_stored_once(harness: Harness) -> None:
    """An agent that died before it removed its files sends everything again."""
    content = os.urandom(CHUNK_BYTES + 1)
    for _ in range(2):
        harness.leave(content)
        await harness.upload()
    assert [each["state"] for each in await harness.artifacts()] == ["ready"]
    assert (await harness.event_types()).count("job.traced") == 1


async def test_an_upload_that_broke_off_goes_on_where_it_was(harness: Harness) -> None:
    content = os.urandom(2 * CHUNK_BYTES)
    offer = Offer(
        job_id=harness.job.id, generation=1, rank=0, artifact=msgspec.json.decode(harness.leave(content).read_bytes(), type=RankArtifact)
    )
    received = msgspec.json.decode((await harness.agent.post(ARTIFACTS_PATH, content=msgspec.json.encode(offer))).content, type=Received)
    for number in (1, 0, 0):  # only the one that is wanted is taken
        await harness.agent.put(f"{ARTIFACTS_PATH}/{received.id}/{number}", content=content[:CHUNK_BYTES])
    again = msgspec.json.decode((await harness.agent.post(ARTIFACTS_PATH, content=msgspec.json.encode(offer))).content, type=Received)
    assert (received.next_chunk, again) == (0, Received(id=received.id, next_chunk=1))
    refused = await harness.client.get(f"{JOBS}/{harness.job.id}/artifacts/{received.id}/content")
    assert (refused.status_code, refused.json()["code"]) == (409, "artifact_not_ready")
    await harness.upload()
    assert (await harness.client.get(f"{JOBS}/{harness.job.id}/artifacts/{received.id}/content")).content == content


async def test_what_a_disk_has_changed_is_not_given_out(harness: Harness) -> None:
    note = harness.leave(b"as it was written")
    (note.parent / "trace.json.gz").write_bytes(b"as it was changed")
    await harness.upload()
    (found,) = await harness.artifacts()
    assert (found["state"], found["bytes"]) == ("failed", 0)
    assert "SHA-256" in found["error"]
    async with harness.services.metrics.read() as points:
        assert await rows.chunks(points, found["id"]) == 0


async def test_a_rank_that_has_no_trace_says_why(harness: Harness) -> None:
    note = harness.leave(error="RuntimeError: CUPTI_ERROR_NOT_INITIALIZED")
    await harness.upload()
    (found,) = await harness.artifacts()
    assert (found["state"], found["error"]) == ("failed", "RuntimeError: CUPTI_ERROR_NOT_INITIALIZED")
    assert not note.exists()
    assert "job.trace_failed" in await harness.event_types()


async def test_a_job_that_has_left_too_much_is_refused_with_both_numbers(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_artifacts, "MAX_JOB_BYTES", 150)
    for name in ("a", "b"):
        harness.leave(bytes(100), name=name)
        await harness.upload()
    second, first = await harness.artifacts()
    assert (first["state"], second["state"]) == ("ready", "failed")
    assert second["error"] == "with its 100 bytes the job would have 200; the limit is 150: delete older ones"
    assert (await harness.client.delete(f"{JOBS}/{harness.job.id}/artifacts/{first['id']}")).status_code == 204
    harness.leave(bytes(100), name="c")
    await harness.upload()
    assert [each["name"] for each in await harness.artifacts() if each["state"] == "ready"] == ["c"]


@pytest.mark.parametrize("fields", [{"error": "no CUPTI"}, {"sha256": "0" * 64}, {}], ids=["failed", "damaged", "whole"])
async def test_files_without_end_make_a_bounded_number_of_rows_and_events(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any]
) -> None:
    """Those that have failed have no bytes, and tiny ones few: the limit of bytes held for neither."""
    monkeypatch.setattr(stored_artifacts, "MAX_JOB_ARTIFACTS", 3)
    for number in range(10):
        harness.leave(b"x", name=f"{number}", **fields)
        await harness.upload()
    newest, *others = await harness.artifacts()
    assert len(others) == 2
    assert newest["error"] == "with it the job has 3 traces and records of gradients, which is the limit; further ones are dropped"
    assert len([type for type in await harness.event_types() if type in ("job.traced", "job.trace_failed")]) == 3
    assert not list(harness.data.rglob("*.note")), "and the node keeps none of them"


async def test_images_that_arrive_damaged_count_for_the_limit_of_their_job(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_offers, "MAX_JOB_OBJECTS", 2)
    for number in range(10):
        label = MediaLabel(key="image", kind="images", count=1)
        harness.leave(b"x", name=f"{number}", kind="media", media=label, first_step=number, last_step=number, sha256="0" * 64)
        await harness.upload()
    async with harness.services.control.read() as session:
        rows = (await session.scalars(select(ArtifactRow).where(ArtifactRow.job_id == harness.job.id))).all()
    assert len(rows) == 3, "and one that says why there are no more"


async def test_what_a_rank_says_of_a_file_is_cut_or_refused(harness: Harness) -> None:
    """All of it stood in the job's history, and what had more than 64 KiB was offered for ever."""
    harness.leave(error="\0" + "x" * 40_000, name="long")
    harness.leave(error="x" * 500_000, name="huge")
    image = {"kind": "media", "media": MediaLabel(key="image", kind="images", count=1 << 70)}
    cases: dict[str, dict[str, Any]] = {
        "late": {"last_step": 1 << 60},
        "turned": {"first_step": 8},
        "asked": {"request": "r" * 1_000},
        "many": image,
    }
    for name, fields in cases.items():
        harness.leave(b"x", name=name, **fields)
    await harness.upload()
    (found,) = await harness.artifacts()
    assert (found["name"], len(found["error"])) == ("long", 1_000)
    assert not list(harness.data.rglob("*.note")), "what is refused is not offered for ever"


async def test_files_of_ranks_that_the_node_does_not_hold_are_dropped(harness: Harness, connect: Connect) -> None:
    note = harness.leave(b"x", rank=7)
    await harness.upload()
    assert await harness.artifacts() == []
    assert not note.exists()


async def test_a_file_that_is_never_taken_holds_up_no_other(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    real = stored_artifacts.check

    def broken(offer: Offer) -> None:
        if offer.artifact.name == "first":
            raise RuntimeError("a bug of the coordinator")
        real(offer)

    monkeypatch.setattr(stored_artifacts, "check", broken)
    stuck = harness.leave(b"x", name="first")
    harness.leave(b"y", name="second")
    with pytest.raises(CoordinatorAwayError, match="answered 500"):
        await harness.upload()
    assert [each["name"] for each in await harness.artifacts()] == ["second"]
    assert stuck.exists()


async def test_while_the_coordinator_is_away_everything_stays(harness: Harness) -> None:
    note = harness.leave(b"x")
    nobody = httpx.AsyncClient(base_url="http://127.0.0.1:9")
    with pytest.raises(CoordinatorAwayError):
        await ArtifactUploader(nobody, JobFolders(harness.data / "jobs")).upload_all()
    await nobody.aclose()
    assert note.exists()


# --- asking


async def test_a_request_is_carried_to_its_ranks_until_they_have_answered(harness: Harness) -> None:
    answer = await harness.ask(steps=2, ranks=[1, 0])
    assert answer.status_code == 201, answer.text
    request = answer.json()
    assert (request["generation"], request["steps"], request["ranks"], request["state"]) == (1, 2, [0, 1], "open")
    assert await harness.told() == Profile(id=request["id"], steps=2, ranks=(0, 1))
    harness.leave(b"trace", rank=0, request=request["id"])
    await harness.upload()
    assert await harness.told() == Profile(id=request["id"], steps=2, ranks=(1,))
    harness.leave(rank=1, request=request["id"], error="no")
    await harness.upload()
    assert await harness.told() is None
    assert ((await harness.request())["state"], (await harness.request())["answered"]) == ("done", [0, 1])
    assert "job.profile_requested" in await harness.event_types()


async def test_one_trace_at_a_time(harness: Harness) -> None:
    await harness.ask()
    second = await harness.ask()
    assert (second.status_code, second.json()["code"]) == (409, "already_profiling")
    assert "rank 0 has not answered yet" in second.json()["detail"]


async def test_a_request_ends_with_its_generation(harness: Harness) -> None:
    request = (await harness.ask()).json()
    async with harness.services.write() as session:
        generation = await session.get(GenerationRow, (harness.job.id, 1))
        assert generation is not None
        generation.ended_at = START
    assert (await harness.request())["state"] == "missed"
    assert await harness.told() is None
    assert (await harness.ask()).json()["id"] != request["id"]


@pytest.mark.parametrize(
    ("order", "status", "code", "words"),
    [
        ({"ranks": [2]}, 409, "cannot_profile", "ranks=2: job digits runs with the ranks 0 to 1"),
        ({"steps": 21}, 422, "invalid_request", ""),
        ({"ranks": []}, 422, "invalid_request", ""),
    ],
)
async def test_what_cannot_be_traced_is_refused(harness: Harness, order: dict[str, Any], status: int, code: str, words: str) -> None:
    answer = await harness.ask(**order)
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert words in answer.json()["detail"]


async def test_only_running_jobs_of_ours_can_be_traced(harness: Harness, services: Services) -> None:
    script = factories.job_spec(model=None, data=None, training=None, script={"path": "x.py"})
    async with services.write() as session:
        waiting = await factories.create_job(session)
        foreign = await factories.create_job(session, spec=script, state=JobState.RUNNING)
    for job, code in ((waiting, "job_not_running"), (foreign, "cannot_profile")):
        answer = await harness.client.post(f"{JOBS}/{job.id}/profile", json={})
        assert (answer.status_code, answer.json()["code"]) == (409, code)


async def test_a_chunk_that_comes_while_its_file_is_removed_does_not_stay(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    offer = Offer(
        job_id=harness.job.id, generation=1, rank=0, artifact=msgspec.json.decode(harness.leave(b"x" * 9).read_bytes(), type=RankArtifact)
    )
    received = msgspec.json.decode((await harness.agent.post(ARTIFACTS_PATH, content=msgspec.json.encode(offer))).content, type=Received)
    add_chunk = rows.add_chunk

    async def removed_meanwhile(points: AsyncSession, artifact_id: str, number: int, data: bytes) -> None:
        async with harness.services.write() as session:
            await session.delete(await session.get_one(ArtifactRow, artifact_id))
        await add_chunk(points, artifact_id, number, data)

    monkeypatch.setattr(rows, "add_chunk", removed_meanwhile)
    answer = await harness.agent.put(f"{ARTIFACTS_PATH}/{received.id}/0", content=b"x" * 9)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    async with harness.services.metrics.read() as points:
        assert await rows.chunks(points, received.id) == 0


async def test_the_audit_and_the_job_say_who_deleted_a_file(harness: Harness) -> None:
    harness.leave(b"12345")
    await harness.upload()
    (file,) = await harness.artifacts()
    assert (await harness.client.delete(f"{JOBS}/{harness.job.id}/artifacts/{file['id']}")).status_code == 204
    assert "job.file_deleted" in await harness.event_types()
    (told,) = (await harness.client.get("/api/v1/audit", params={"action": "job.file_deleted"})).json()["items"]
    assert (told["user_name"], told["job_id"]) == ("admin", harness.job.id)
    assert told["message"] == "trace.json.gz of rank 0 (5 bytes) was deleted"


async def test_what_arrives_after_the_data_of_its_job_was_deleted_is_not_stored(harness: Harness) -> None:
    async with harness.services.write() as session:
        (await session.get_one(JobRow, harness.job.id)).state = JobState.COMPLETED
    assert (await harness.client.delete(f"{JOBS}/{harness.job.id}/data")).status_code == 202
    label = MediaLabel(key="samples", kind="images", count=1)
    notes = [harness.leave(b"trace"), harness.leave(b"image", name="image.gz", kind="media", media=label)]
    await harness.upload()
    async with harness.services.control.read() as session:
        assert list(await aged.artifacts_of(session, harness.job.id, 10)) == []
    assert await harness.event_types() == ["job.data_unwanted"]
    assert not any(note.exists() for note in notes)
