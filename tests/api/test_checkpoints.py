"""The contract of the checkpoint endpoints, on both databases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.cluster.states import CheckpointState, JobState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
from paceline.training.spec.stored import StoredSpec
from tests import factories

CHECKPOINTS = "/api/v1/checkpoints"


@dataclass(frozen=True)
class Saved:
    client: httpx.AsyncClient
    services: Services
    job: JobRow
    ids: Sequence[str]

    async def list(self, **params: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await self.client.get(f"{CHECKPOINTS}/jobs/{self.job.id}", params=params)).json()["items"]
        return found

    async def set(self, checkpoint_id: str, **columns: Any) -> None:
        async with self.services.write() as session:
            row = await session.get_one(CheckpointRow, checkpoint_id)
            for name, value in columns.items():
                setattr(row, name, value)


@pytest.fixture
async def saved(client: httpx.AsyncClient, services: Services) -> Saved:
    """A paused job with checkpoints of steps 10, 20, 30; the first is the best."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        spec = factories.job_spec(checkpoint={"keep_last": 2, "keep_best": 1})
        job = await factories.create_job(session, spec=spec, state=JobState.PAUSED, generation=1)
        rows = [
            CheckpointRow(
                job_id=job.id,
                step=step,
                generation=1,
                node_id=node.id,
                directory=f"/c/step-{step}",
                bytes=5,
                manifest_sha256="0" * 64,
                metrics={"eval_loss": loss},
                created_at=factories.START,
            )
            for step, loss in ((10, 0.1), (20, 0.9), (30, float("nan")))
        ]
        session.add_all(rows)
        await session.flush()
    return Saved(client, services, job, [row.id for row in rows])


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_the_list_says_which_is_the_best_the_latest_and_the_next_to_go(saved: Saved) -> None:
    found = await saved.list()
    assert [(each["step"], each["best"], each["latest"], each["deleted_next"]) for each in found] == [
        (30, False, True, False),
        (20, False, False, True),
        (10, True, False, False),
    ]
    assert found[0]["metrics"] == {"eval_loss": "NaN"}
    one = (await saved.client.get(f"{CHECKPOINTS}/{saved.ids[0]}")).json()
    assert one == found[2]


async def test_pages_hold_every_checkpoint_once(saved: Saved) -> None:
    first = (await saved.client.get(f"{CHECKPOINTS}/jobs/{saved.job.id}", params={"limit": 2})).json()
    second = (await saved.client.get(f"{CHECKPOINTS}/jobs/{saved.job.id}", params={"limit": 2, "cursor": first["next_cursor"]})).json()
    assert [each["step"] for each in first["items"] + second["items"]] == [30, 20, 10]
    assert second["next_cursor"] is None


async def test_what_is_unknown_is_not_found(saved: Saved) -> None:
    for method, path in (
        ("GET", "jobs/nothing"),
        ("GET", "nothing"),
        ("PUT", "nothing/pin"),
        ("DELETE", "nothing"),
        ("POST", "nothing/restore"),
    ):
        answer = await saved.client.request(method, f"{CHECKPOINTS}/{path}", json={} if method == "POST" else None)
        assert code(answer) == (404, "not_found")


async def test_a_pinned_one_is_kept_until_it_is_unpinned(saved: Saved) -> None:
    for _ in range(2):
        assert (await saved.client.put(f"{CHECKPOINTS}/{saved.ids[1]}/pin")).json()["pinned"] is True
    assert not (await saved.list())[1]["deleted_next"]
    assert code(await saved.client.delete(f"{CHECKPOINTS}/{saved.ids[1]}")) == (409, "checkpoint_in_use")
    assert (await saved.client.put(f"{CHECKPOINTS}/{saved.ids[1]}/unpin")).json()["pinned"] is False
    assert (await saved.list())[1]["deleted_next"]


async def test_deleting_a_checkpoint_that_no_job_needs(saved: Saved) -> None:
    for _ in range(2):
        answer = await saved.client.delete(f"{CHECKPOINTS}/{saved.ids[0]}")
        assert (answer.status_code, answer.json()["state"]) == (202, "deleting")
    for act in ("pin", "unpin"):
        answer = await saved.client.put(f"{CHECKPOINTS}/{saved.ids[0]}/{act}")
        assert code(answer) == (409, "checkpoint_not_usable")
        assert answer.json()["detail"].endswith(f"is deleting; there is nothing left to {act}")


async def test_the_newest_of_a_job_that_would_continue_from_it_needs_confirmation(saved: Saved) -> None:
    answer = await saved.client.delete(f"{CHECKPOINTS}/{saved.ids[2]}")
    assert code(answer) == (409, "checkpoint_in_use")
    assert "newest one of job digits, which is paused" in answer.json()["detail"]
    assert (await saved.client.delete(f"{CHECKPOINTS}/{saved.ids[2]}", params={"confirm": "true"})).status_code == 202


async def test_restoring_makes_a_job_that_uses_it(saved: Saved) -> None:
    headers = {"Idempotency-Key": "k"}
    path = f"{CHECKPOINTS}/{saved.ids[1]}/restore"
    first, second = [await saved.client.post(path, json={"name": "again", "steps": 500}, headers=headers) for _ in range(2)]
    job = first.json()
    assert (first.status_code, job["name"], job["restored_from"], job["state"]) == (201, "again", saved.ids[1], "queued")
    assert job["spec"]["training"]["steps"] == 500
    assert second.json()["id"] == job["id"]
    assert (await saved.client.get(f"{CHECKPOINTS}/{saved.ids[1]}")).json()["used_by"] == [{"job_id": job["id"], "job_name": "again"}]


@pytest.mark.parametrize(
    ("columns", "body", "detail"),
    [
        ({"state": CheckpointState.DAMAGED, "damage": "hash differs"}, {}, "is damaged: hash differs"),
        ({"state": CheckpointState.DELETED}, {}, "is deleted"),
        ({}, {"steps": 20}, "nothing is left to train; pass steps above 20"),
    ],
)
async def test_what_cannot_be_restored_says_why(saved: Saved, columns: dict[str, Any], body: dict[str, Any], detail: str) -> None:
    await saved.set(saved.ids[1], **columns)
    answer = await saved.client.post(f"{CHECKPOINTS}/{saved.ids[1]}/restore", json=body)
    assert code(answer) == (409, "checkpoint_not_usable")
    assert detail in answer.json()["detail"]


async def test_the_last_checkpoint_of_a_job_with_epochs_is_not_restored_to_train_nothing(saved: Saved) -> None:
    """It was a job that ended as completed, without a step or a checkpoint of its own."""
    async with saved.services.write() as session:
        job = await session.get_one(JobRow, saved.job.id)
        job.spec = StoredSpec(factories.job_spec(training={"epochs": 5, "global_batch_size": 8}).model_dump(mode="json"))
        job.progress = {"step": 30, "total_steps": 30}
    for index, body in ((2, {}), (2, {"in_place": True}), (1, {"steps": 20})):
        answer = await saved.client.post(f"{CHECKPOINTS}/{saved.ids[index]}/restore", json=body)
        assert code(answer) == (409, "checkpoint_not_usable")
        assert "nothing is left to train; pass steps above" in answer.json()["detail"]
    for index, body in ((1, {}), (2, {"steps": 40})):
        answer = await saved.client.post(f"{CHECKPOINTS}/{saved.ids[index]}/restore", json=body)
        assert answer.status_code == 201


async def test_a_name_that_is_none_is_refused(saved: Saved) -> None:
    answer = await saved.client.post(f"{CHECKPOINTS}/{saved.ids[1]}/restore", json={"name": "No Name!"})
    assert code(answer) == (422, "invalid_spec")
    assert answer.json()["errors"][0]["pointer"] == "/name"


async def test_a_restore_needs_no_body(saved: Saved) -> None:
    answer = await saved.client.post(f"{CHECKPOINTS}/{saved.ids[1]}/restore")
    assert (answer.status_code, answer.json()["name"], answer.json()["restored_from"]) == (201, "digits-restored", saved.ids[1])


@pytest.mark.parametrize("body", [{}, {"in_place": True}], ids=["as a new job", "in place"])
async def test_a_job_whose_secret_was_deleted_is_not_restored(saved: Saved, body: dict[str, Any]) -> None:
    """It waited for slots, took them, and each of its ranks failed."""
    async with saved.services.write() as session:
        job = await session.get_one(JobRow, saved.job.id)
        job.spec = StoredSpec(factories.job_spec(environment={"secrets": ["TOKEN"]}).model_dump(mode="json"))
    path = f"{CHECKPOINTS}/{saved.ids[1]}/restore"
    assert code(await saved.client.post(path, json=body)) == (422, "no_secret")
    jobs = (await saved.client.get("/api/v1/training/jobs")).json()["items"]
    assert [(job["id"], job["state"]) for job in jobs] == [(saved.job.id, "paused")]
    assert (await saved.client.put("/api/v1/secrets/default/TOKEN", json={"value": "hf_Canary0123456789"})).status_code == 200
    assert (await saved.client.post(path, json=body)).is_success


# --- into the same job


async def set_back(saved: Saved, index: int, **body: Any) -> httpx.Response:
    return await saved.client.post(f"{CHECKPOINTS}/{saved.ids[index]}/restore", json={"in_place": True, **body})


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED])
async def test_a_job_at_rest_is_set_back_to_a_checkpoint_of_its_own(saved: Saved, state: JobState) -> None:
    async with saved.services.write() as session:
        job = await session.get_one(JobRow, saved.job.id)
        job.state, job.restarts, job.ended_at, job.progress = state, 3, factories.START, {"step": 35, "bad_loss": {}}
    answer = await set_back(saved, 1, steps=40)
    job = answer.json()
    assert (answer.status_code, job["id"], job["state"], job["desired"]) == (200, saved.job.id, "queued", "run")
    assert (job["restarts"], job["ended_at"], job["progress"]["step"], job["spec"]["training"]["steps"]) == (0, None, 20, 40)
    assert [(each["step"], each["state"]) for each in await saved.list()] == [(30, "superseded"), (20, "committed"), (10, "committed")]
    events = (await saved.client.get(f"/api/v1/training/jobs/{job['id']}/events")).json()["items"]
    told = next(event for event in events if event["type"] == "job.set_back")
    assert told["data"] | {"from": state.value, "to": "queued", "step": 20} == told["data"]


async def test_a_job_that_was_set_back_can_be_set_forward_again(saved: Saved) -> None:
    await set_back(saved, 0)
    async with saved.services.write() as session:
        (await session.get_one(JobRow, saved.job.id)).state = JobState.PAUSED
    assert (await set_back(saved, 2)).json()["progress"]["step"] == 30
    assert [(each["step"], each["state"]) for each in await saved.list()] == [(30, "committed"), (20, "superseded"), (10, "committed")]


@pytest.mark.parametrize(
    ("columns", "body", "detail"),
    [
        ({"state": JobState.RUNNING}, {}, "is running; a job is set back while it is paused or has ended: pause it first"),
        ({"state": JobState.QUEUED}, {}, "is queued"),
        ({}, {"name": "other"}, "name='other' is of a new job"),
        ({"ran_seconds": 7200.0}, {}, "has used up its time_limit of 2h"),
    ],
)
async def test_a_job_that_cannot_be_set_back_says_why(saved: Saved, columns: dict[str, Any], body: dict[str, Any], detail: str) -> None:
    async with saved.services.write() as session:
        job = await session.get_one(JobRow, saved.job.id)
        job.spec = StoredSpec(factories.job_spec(time_limit="2h").model_dump(mode="json"))
        for name, value in columns.items():
            setattr(job, name, value)
    answer = await set_back(saved, 1, **body)
    assert code(answer) == (409, "cannot_set_back")
    assert detail in answer.json()["detail"]
    assert all(each["state"] == "committed" for each in await saved.list())


async def test_setting_back_honours_a_revision(saved: Saved) -> None:
    path, stale = f"{CHECKPOINTS}/{saved.ids[1]}/restore", {"If-Match": '"99"'}
    assert code(await saved.client.post(path, json={"in_place": True}, headers=stale)) == (412, "precondition_failed")


async def test_a_job_whose_records_were_deleted_is_not_set_back(saved: Saved) -> None:
    async with saved.services.write() as session:
        (await session.get_one(JobRow, saved.job.id)).state = JobState.COMPLETED
    assert (await saved.client.delete(f"/api/v1/training/jobs/{saved.job.id}/data")).is_success
    answer = await set_back(saved, 1)
    assert code(answer) == (409, "cannot_set_back")
    assert "was deleted on request" in answer.json()["detail"]


async def test_a_list_has_the_asked_fields_alone(saved: Saved) -> None:
    assert await saved.list(fields="step,state") == [{"step": step, "state": "committed"} for step in (30, 20, 10)]
    answer = await saved.client.get(f"{CHECKPOINTS}/jobs/{saved.job.id}", params={"fields": "step,size"})
    assert code(answer) == (400, "invalid_parameter")
    assert "'size' is not one of best, bytes, created_at" in answer.json()["detail"]


@pytest.mark.parametrize("fields", ["", " , "])
async def test_fields_of_an_empty_variable_leave_the_items_as_they_are(saved: Saved, fields: str) -> None:
    assert await saved.list(fields=fields) == await saved.list() != []


async def test_a_body_that_curl_sends_as_a_form_is_refused_with_the_header_that_it_needs(saved: Saved) -> None:
    for headers in ({"Content-Type": "application/x-www-form-urlencoded"}, {}):
        address = f"{CHECKPOINTS}/{saved.ids[2]}/restore"
        answer = await saved.client.post(address, content=b'{"in_place": true}', headers=headers)
        assert code(answer) == (415, "unsupported_media_type")
        assert "send JSON with the header Content-Type: application/json" in answer.json()["detail"]


# --- of all jobs


async def test_the_checkpoints_of_all_jobs_are_in_one_list(saved: Saved) -> None:
    async with saved.services.write() as session:
        other = await factories.create_job(session, spec=factories.job_spec(name="other"), state=JobState.FAILED, generation=1)
        node, _ = await factories.create_node(session, name="b")
        facts = {
            "node_id": node.id,
            "bytes": 7,
            "manifest_sha256": "1" * 64,
            "metrics": {},
            "created_at": factories.START + timedelta(hours=1),
        }
        session.add(CheckpointRow(job_id=other.id, step=5, generation=1, directory="/c/other", **facts))
    found: list[dict[str, Any]] = []
    cursor = None
    while not found or cursor:
        page = (await saved.client.get(CHECKPOINTS, params={"limit": 3, **({"cursor": cursor} if cursor else {})})).json()
        found, cursor = found + page["items"], page["next_cursor"]
    assert (found[0]["job_name"], found[0]["job_state"], found[0]["step"]) == ("other", "failed", 5)
    assert sorted(each["step"] for each in found[1:]) == [10, 20, 30]
    assert {each["id"]: each["best"] for each in found[1:]}[saved.ids[0]] is True
    assert [each["step"] for each in (await saved.client.get(CHECKPOINTS, params={"q": "oth"})).json()["items"]] == [5]
    assert (await saved.client.get(CHECKPOINTS, params={"state": "damaged"})).json()["items"] == []
    assert code(await saved.client.get(CHECKPOINTS, params={"state": "broken"})) == (400, "invalid_parameter")
