"""What may be changed about a job whatever it does, who sees that it was, and what the archive does; on both databases."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.loops.scheduler import Scheduler
from paceline.api.services.lifecycle import job_lifecycle
from paceline.cluster.states import JobState
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from tests import factories
from tests.api.test_jobs import JOBS, code, create, names, revision_of
from tests.conftest import Connect


async def edit(client: httpx.AsyncClient, job: JobRow, **changes: Any) -> httpx.Response:
    return await client.patch(f"{JOBS}/{job.id}", json=changes)


async def events_of(client: httpx.AsyncClient, job: JobRow) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await client.get(f"{JOBS}/{job.id}/events")).json()["items"]
    return found


@pytest.mark.parametrize("state", [JobState.QUEUED, JobState.RUNNING, JobState.PAUSED, JobState.COMPLETED])
async def test_a_job_is_edited_whatever_it_does(client: httpx.AsyncClient, services: Services, state: JobState) -> None:
    job = await create(services, state=state, spec=factories.job_spec(labels={"team": "a", "old": "x"}))
    answer = await edit(client, job, name="renamed", project="vision", priority=90, notes="keep", labels={"team": "b", "old": None})
    changed = answer.json()
    assert (answer.status_code, revision_of(answer)) == (200, 2), answer.text
    assert (changed["name"], changed["project"], changed["priority"], changed["notes"]) == ("renamed", "vision", 90, "keep")
    assert (changed["labels"], changed["state"]) == ({"team": "b"}, state.value)
    spec = changed["spec"]
    assert (spec["name"], spec["project"], spec["priority"], spec["labels"]) == ("renamed", "vision", 90, {"team": "b"})
    assert await names(client, q="team=b") == await names(client, q="KEEP") == ["renamed"]
    assert await names(client, q="digits") == await names(client, q="team=a") == []
    event = (await events_of(client, job))[-1]
    assert (event["type"], event["actor"]["name"]) == ("job.edited", "admin")
    assert (
        event["message"]
        == "name digits -> renamed, project default -> vision, priority 50 -> 90, notes changed, label team=b, label old removed"
    )
    assert event["data"]["changes"]["priority"] == {"from": 50, "to": 90}


async def test_an_edit_that_changes_nothing_is_no_event(client: httpx.AsyncClient, services: Services) -> None:
    job = await create(services)
    answer = await edit(client, job, priority=50, labels={"gone": None})
    assert (answer.status_code, revision_of(answer), await events_of(client, job)) == (200, 1, [])


async def test_an_edit_of_an_older_revision_is_refused(client: httpx.AsyncClient, services: Services) -> None:
    job = await create(services)
    assert (await edit(client, job, priority=60)).status_code == 200
    stale = await client.patch(f"{JOBS}/{job.id}", json={"priority": 70}, headers={"If-Match": '"1"'})
    assert code(stale) == (412, "precondition_failed")
    assert (await client.get(f"{JOBS}/{job.id}")).json()["priority"] == 60


@pytest.mark.parametrize(
    "changes",
    [{}, {"priority": 101}, {"priority": "high"}, {"name": "Bad Name!"}, {"labels": {"Bad": "x"}}, {"steps": 5}, {"notes": "x" * 10_001}],
)
async def test_what_a_job_cannot_have_is_refused(client: httpx.AsyncClient, services: Services, changes: dict[str, Any]) -> None:
    assert (await edit(client, await create(services), **changes)).status_code == 422


async def test_a_job_has_at_most_64_labels(client: httpx.AsyncClient, services: Services) -> None:
    job = await create(services, spec=factories.job_spec(labels={f"k{number}": "" for number in range(60)}))
    assert code(await edit(client, job, labels={f"n{number}": "" for number in range(5)})) == (422, "invalid_request")


async def test_members_edit_and_viewers_do_not(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    job = await create(services, state=JobState.COMPLETED)
    async with services.write() as session:
        keys = {role: (await factories.create_user(session, name=role, role=role))[1] for role in ("viewer", "member")}
    for role, expected in (("viewer", 403), ("member", 200)):
        async with connect(keys[role]) as someone:
            assert (await edit(someone, job, notes=role)).status_code == expected
            assert (await someone.put(f"{JOBS}/{job.id}/archive")).status_code == expected


async def test_the_scheduler_places_the_job_with_the_new_priority_first(client: httpx.AsyncClient, services: Services) -> None:
    """Both wait for the one slot that is there; the second one is raised above the first."""
    first, second = await create(services), await create(services, spec=factories.job_spec(name="second"))
    assert (await edit(client, second, priority=80)).status_code == 200
    async with services.write() as session:
        await factories.create_node(session, slots=1)
    await Scheduler(services).step_once(services.now())
    async with services.control.read() as session:
        states = {row.name: row.state for row in (await job_rows.by_id(session, [first.id, second.id])).values()}
    assert states == {"digits": JobState.QUEUED, "second": JobState.STARTING}


async def test_an_archived_job_is_out_of_sight_until_it_is_brought_back(client: httpx.AsyncClient, services: Services) -> None:
    job = await create(services, state=JobState.COMPLETED)
    for _ in range(2):
        answer = await client.put(f"{JOBS}/{job.id}/archive")
        assert (answer.status_code, revision_of(answer), answer.json()["archived_at"] is None) == (200, 2, False)
    assert (await names(client), await names(client, archived="only")) == ([], ["digits"])
    for _ in range(2):
        answer = await client.put(f"{JOBS}/{job.id}/unarchive")
        assert (answer.status_code, revision_of(answer), answer.json()["archived_at"]) == (200, 3, None)
    assert await names(client) == ["digits"]
    assert [event["type"] for event in await events_of(client, job)] == ["job.archived", "job.unarchived"]


async def test_a_job_that_has_not_ended_stays_in_sight(client: httpx.AsyncClient, services: Services) -> None:
    assert code(await client.put(f"{JOBS}/{(await create(services)).id}/archive")) == (409, "job_not_ended")


async def test_an_archived_job_that_is_set_back_is_in_sight_again(client: httpx.AsyncClient, services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_job(session, state=JobState.FAILED, archived_at=services.now())
        checkpoint = factories.checkpoint(job, node, step=10)
        session.add(checkpoint)
        await session.flush()
        await job_lifecycle.set_back(session, job, checkpoint, None, SYSTEM, services.now())
    assert await names(client) == ["digits"]
