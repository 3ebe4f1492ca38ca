"""The registry of models: numbers, aliases that move, and that what a version is made of stays for as long as the version does."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from paceline.api.errors import ProblemError
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.storage import removals
from paceline.api.services.storage.files import drop_old
from paceline.api.services.storage.keeping import DeletionPace, RetentionSweep
from paceline.cluster.states import CheckpointState, JobState
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.storage import DataRemovalRow
from tests import factories
from tests.api.services.artifacts.conftest import FilesHarness
from tests.conftest import Connect
from tests.factories import START

MODELS = "/api/v1/models"


async def checkpoint(left: FilesHarness, step: int, **columns: Any) -> CheckpointRow:
    async with left.services.write() as session:
        row = factories.checkpoint(left.job, left.node, step=step, **columns)
        session.add(row)
        await session.flush()
        return row


async def register(left: FilesHarness, name: str = "gpt", **source: Any) -> Any:
    answer = await left.client.post(MODELS, json={"name": name, **source})
    assert answer.status_code == 201, answer.text
    return answer.json()


async def pinned(left: FilesHarness, row: CheckpointRow) -> bool:
    return bool((await left.client.get(f"/api/v1/checkpoints/{row.id}")).json()["pinned"])


async def end(left: FilesHarness) -> None:
    async with left.services.write() as session:
        job = await session.get_one(JobRow, left.job.id)
        job.state, job.ended_at = JobState.COMPLETED, START


async def test_versions_are_numbered_and_say_where_they_came_from(left: FilesHarness) -> None:
    first = await checkpoint(left, 5, metrics={"loss": 0.5})
    left.leave("model.safetensors", b"weights")
    await left.upload()
    await register(left, checkpoint_id=first.id, notes="the first")
    model = await register(left, job_id=left.job.id, path="rank0/model.safetensors", aliases=["production"])
    newest, oldest = model["versions"]
    assert (oldest["number"], oldest["step"], oldest["metrics"], oldest["notes"], oldest["job_name"]) == (
        1, 5, {"loss": 0.5}, "the first", left.job.name,
    )  # fmt: skip
    assert (newest["number"], newest["path"], newest["aliases"]) == (2, "rank0/model.safetensors", ["production"])
    assert (await left.client.get(newest["download"])).content == b"weights"
    assert [each["name"] for each in (await left.client.get(MODELS)).json()["items"]] == ["gpt"]
    assert len(await left.events("model.registered")) == 2
    audit = (await left.client.get("/api/v1/audit")).json()["items"]
    assert {"model.registered", "model.alias_moved"} <= {entry["action"] for entry in audit}


async def test_an_alias_is_one_version_at_a_time(left: FilesHarness) -> None:
    for step in (5, 6):
        await register(left, checkpoint_id=(await checkpoint(left, step)).id, aliases=["production"])
    for wanted in (1, 1, 2):
        answer = await left.client.put(f"{MODELS}/gpt/aliases/production", json={"version": wanted})
        assert {each["number"]: each["aliases"] for each in answer.json()["versions"]} == {
            1: ["production"] if wanted == 1 else [],
            2: ["production"] if wanted == 2 else [],
        }
    assert (await left.client.put(f"{MODELS}/gpt/aliases/production", json={"version": 9})).status_code == 404
    refused = await left.client.delete(f"{MODELS}/gpt/versions/2")
    assert (refused.status_code, refused.json()["code"]) == (409, "model_in_use")
    assert (await left.client.delete(f"{MODELS}/gpt/aliases/production")).status_code == 200
    assert (await left.client.delete(f"{MODELS}/gpt/aliases/production")).status_code == 404
    assert (await left.client.delete(f"{MODELS}/gpt/versions/2")).status_code == 204
    model = await register(left, checkpoint_id=(await checkpoint(left, 7)).id)
    assert [each["number"] for each in model["versions"]] == [3, 1], "numbers are not used again"


async def test_a_checkpoint_stays_pinned_for_as_long_as_a_version_is_made_of_it(left: FilesHarness) -> None:
    row = await checkpoint(left, 5)
    for name in ("a", "b"):
        await register(left, name, checkpoint_id=row.id)
    assert await pinned(left, row)
    for method, url in (("PUT", "unpin"), ("DELETE", "?confirm=true")):
        answer = await left.client.request(method, f"/api/v1/checkpoints/{row.id}{'' if url[0] == '?' else '/'}{url}")
        assert (answer.status_code, answer.json()["code"]) == (409, "model_in_use")
        assert "a:1, b:1" in answer.json()["detail"]
    await left.client.delete(f"{MODELS}/a/versions/1")
    assert await pinned(left, row)
    await left.client.delete(f"{MODELS}/b/versions/1")
    assert not await pinned(left, row)
    by_hand = await checkpoint(left, 6, pinned=True)
    await register(left, checkpoint_id=by_hand.id)
    await left.client.delete(f"{MODELS}/gpt/versions/1")
    assert await pinned(left, by_hand), "somebody else had pinned it"


async def test_a_checkpoint_that_a_person_has_pinned_stays_pinned_whichever_version_goes_last(left: FilesHarness) -> None:
    by_hand = await checkpoint(left, 5, pinned=True)
    for name in ("a", "b"):
        await register(left, name, checkpoint_id=by_hand.id)
    for name in ("a", "b"):
        await left.client.delete(f"{MODELS}/{name}/versions/1")
        assert await pinned(left, by_hand)


async def test_a_checkpoint_that_is_pinned_while_a_version_is_made_of_it_stays_pinned(left: FilesHarness) -> None:
    row = await checkpoint(left, 5)
    await register(left, checkpoint_id=row.id)
    answer = await left.client.put(f"/api/v1/checkpoints/{row.id}/pin")
    assert (answer.status_code, answer.json()["pinned"]) == (200, True)
    await left.client.delete(f"{MODELS}/gpt/versions/1")
    assert await pinned(left, row)
    assert (await left.client.put(f"/api/v1/checkpoints/{row.id}/unpin")).json()["pinned"] is False


async def test_a_file_stays_though_a_newer_one_takes_its_place_and_the_job_gets_old(left: FilesHarness) -> None:
    uploader = left.uploader()
    left.leave("model.pt", b"first")
    left.leave("other.txt", b"other")
    await uploader.finish()
    version = (await register(left, job_id=left.job.id, path="rank0/model.pt"))["versions"][0]
    assert (await left.client.delete(left.url, params={"path": "rank0/model.pt"})).json()["code"] == "model_in_use"
    left.leave("model.pt", b"second")
    await uploader.finish()
    assert (await left.content("rank0/model.pt")).content == b"second"
    assert (await left.client.get(version["download"])).content == b"first"
    await end(left)
    sweep = RetentionSweep(left.services, left.services.now() + timedelta(days=91), DeletionPace.of(10.0))
    with sweep.turns("delete its old files") as turns:
        await drop_old(sweep, turns, timedelta(days=90))
    assert (await left.page())["files"] == 0
    (told,) = await left.events("job.files_removed")
    assert "2 files in its artifacts (11 bytes) were removed: older than 90 days" in told["message"]
    assert (await left.client.get(version["download"])).content == b"first"
    refused = await left.client.delete(f"/api/v1/training/jobs/{left.job.id}/data")
    assert (refused.status_code, refused.json()["code"]) == (409, "model_in_use")
    assert (await left.client.delete(f"{MODELS}/gpt/versions/1")).status_code == 204
    assert (await left.client.get(version["download"])).status_code == 404
    async with left.services.control.read() as session:
        assert await session.get(ArtifactRow, version["download"].split("/")[-2]) is None


async def test_a_file_that_becomes_a_model_while_others_are_removed_keeps_its_content(left: FilesHarness) -> None:
    """Whoever removes many files has read their rows some time before."""
    left.leave("model.pt", b"weights")
    await left.upload()
    async with left.services.control.read() as session:
        (row,) = (await session.scalars(select(ArtifactRow))).all()
    version = (await register(left, job_id=left.job.id, path="rank0/model.pt"))["versions"][0]
    with pytest.raises(ProblemError, match="gpt:1 in the registry of models"):
        await stored_artifacts.remove(left.services, row)
    assert (await left.client.get(version["download"])).content == b"weights"


async def test_a_file_of_a_job_whose_data_is_being_deleted_becomes_no_model(left: FilesHarness) -> None:
    left.leave("model.pt", b"weights")
    await left.upload()
    await end(left)
    assert (await left.client.delete(f"/api/v1/training/jobs/{left.job.id}/data")).status_code == 202
    refused = await left.client.post(MODELS, json={"name": "gpt", "job_id": left.job.id, "path": "rank0/model.pt"})
    assert (refused.status_code, refused.json()["code"]) == (410, "no_longer_kept")


async def test_a_removal_that_a_model_holds_up_holds_up_no_other(left: FilesHarness) -> None:
    left.leave("model.pt", b"weights")
    await left.upload()
    await register(left, job_id=left.job.id, path="rank0/model.pt")
    async with left.services.write() as session:
        other = await factories.create_job(session, state=JobState.COMPLETED, ended_at=START)
        for minutes, job_id in enumerate((left.job.id, other.id)):
            session.add(DataRemovalRow(job_id=job_id, asked_by="ada", asked_at=START + timedelta(minutes=minutes)))
    await removals.carry_out(RetentionSweep(left.services, START, DeletionPace.of(10.0)))
    (told,) = await left.events("job.held_up")
    assert "gpt:1 in the registry of models" in told["message"]
    removal = (await left.client.get(f"/api/v1/training/jobs/{other.id}")).json()["data_removal"]
    assert removal["state"] == "removed"


@pytest.mark.parametrize(
    "body",
    [
        {"name": "gpt"},
        {"name": "gpt", "checkpoint_id": "x", "path": "y", "job_id": "z"},
        {"name": "gpt", "path": "y"},
        {"name": "../gpt", "checkpoint_id": "x"},
        {"name": "gpt", "checkpoint_id": "x", "aliases": ["1"]},
    ],
)
async def test_a_registration_that_names_nothing_or_two_things_is_refused(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert (await client.post(MODELS, json=body)).status_code == 422


async def test_what_is_not_there_or_damaged_is_not_registered(left: FilesHarness) -> None:
    damaged = await checkpoint(left, 5, state=CheckpointState.DAMAGED)
    assert (await left.client.post(MODELS, json={"name": "a", "checkpoint_id": damaged.id})).status_code == 409
    assert (await left.client.post(MODELS, json={"name": "a", "checkpoint_id": "no"})).status_code == 404
    assert (await left.client.post(MODELS, json={"name": "a", "job_id": left.job.id, "path": "rank0/no"})).status_code == 404
    left.leave("model.pt", b"weights")
    await left.upload()
    folder = await left.client.post(MODELS, json={"name": "a", "job_id": left.job.id, "path": "rank0"})
    assert (folder.status_code, folder.json()["detail"]) == (400, "'rank0' is a folder; a version of a model is one file: name one in it")
    assert (await left.client.get(f"{MODELS}/a")).status_code == 404


async def test_viewers_read_and_members_delete_only_what_they_registered(left: FilesHarness, connect: Connect) -> None:
    row = await checkpoint(left, 5)
    await register(left, checkpoint_id=row.id)
    for role in ("viewer", "member"):
        async with left.services.write() as session:
            _, key = await factories.create_user(session, name=role, role=role)
        async with connect(key) as other:
            assert (await other.get(f"{MODELS}/gpt")).status_code == 200
            assert (await other.delete(f"{MODELS}/gpt/versions/1")).status_code == 403
            registered = await other.post(MODELS, json={"name": "mine", "checkpoint_id": row.id})
            assert registered.status_code == (201 if role == "member" else 403)
            if role == "member":
                assert (await other.delete(f"{MODELS}/mine/versions/1")).status_code == 204


async def test_the_same_request_twice_makes_one_version(left: FilesHarness) -> None:
    row = await checkpoint(left, 5)
    for _ in range(2):
        body = {"name": "gpt", "checkpoint_id": row.id}
        answer = await left.client.post(MODELS, json=body, headers={"Idempotency-Key": "once"})
        assert [each["number"] for each in answer.json()["versions"]] == [1]
