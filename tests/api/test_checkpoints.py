"""The contract of the checkpoint endpoints, on both databases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.cluster.states import CheckpointState, JobState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import JobRow
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
    assert code(await saved.client.put(f"{CHECKPOINTS}/{saved.ids[0]}/pin")) == (409, "checkpoint_not_usable")


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


async def test_a_name_that_is_none_is_refused(saved: Saved) -> None:
    answer = await saved.client.post(f"{CHECKPOINTS}/{saved.ids[1]}/restore", json={"name": "No Name!"})
    assert code(answer) == (422, "invalid_spec")
    assert answer.json()["errors"][0]["pointer"] == "/name"
