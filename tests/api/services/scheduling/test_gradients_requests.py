"""Gradients of a running job's next step: who is told, for how long, and what is refused."""

from __future__ import annotations

from typing import Any

import httpx
import msgspec
import pytest

from paceline.api.core.context import Services
from paceline.api.services.scheduling.assignments import desired_of
from paceline.cluster.protocol import ARTIFACTS_PATH, WantedGradients
from paceline.cluster.states import JobState
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.monitoring.artifacts import ArtifactKind, Offer, RankArtifact
from tests import factories
from tests.conftest import Connect
from tests.factories import START

JOBS = "/api/v1/training/jobs"


@pytest.fixture
async def node(services: Services) -> tuple[NodeRow, str]:
    async with services.write() as session:
        return await factories.create_node(session)


@pytest.fixture
async def job(services: Services, node: tuple[NodeRow, str]) -> JobRow:
    async with services.write() as session:
        spec = factories.job_spec(parallelism={"strategy": "ddp"}, resources={"nodes": 2})
        return await factories.create_running_job(session, node[0], spec=spec)


async def ask(client: httpx.AsyncClient, job: JobRow, **order: Any) -> httpx.Response:
    return await client.post(f"{JOBS}/{job.id}/gradients", json=order)


async def newest(client: httpx.AsyncClient, job: JobRow) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"{JOBS}/{job.id}/gradients")).json()["request"]
    return found


async def told(services: Services, node: NodeRow) -> WantedGradients | None:
    """What the node is told now."""
    async with services.control.read() as session:
        found = await node_rows.get(session, node.id)
        assert found is not None
        (assignment,) = (await desired_of(session, [found]))[node.id].assignments
        return assignment.gradients


async def answer(
    agent: httpx.AsyncClient,
    job: JobRow,
    rank: int,
    request: str | None,
    kind: ArtifactKind,
    *,
    error: str | None = None,
    name: str = "step",
) -> None:
    known: dict[str, Any] = {"error": error} if error else {"bytes": 9, "sha256": "0" * 64}
    artifact = RankArtifact(name=f"{kind}-{name}", kind=kind, first_step=8, last_step=8, time=1.0, request=request, **known)
    offer = Offer(job_id=job.id, generation=1, rank=rank, artifact=artifact)
    (await agent.post(ARTIFACTS_PATH, content=msgspec.json.encode(offer))).raise_for_status()


async def test_a_request_is_carried_to_all_ranks_until_they_have_answered(
    client: httpx.AsyncClient, services: Services, connect: Connect, node: tuple[NodeRow, str], job: JobRow
) -> None:
    assert (await client.get(f"{JOBS}/{job.id}/gradients")).json() == {"job_id": job.id, "steps": [], "request": None}
    made = await ask(client, job, names=["blocks.*"], snapshots=True)
    assert made.status_code == 201, made.text
    request = made.json()
    assert (request["state"], request["ranks"], request["answered"], request["step"]) == ("open", 2, 0, None)
    wanted = WantedGradients(id=request["id"], names=("blocks.*",), snapshots=True, ranks=(0, 1))
    assert await told(services, node[0]) == wanted
    async with connect(node[1]) as agent:
        await answer(agent, job, 0, request["id"], "gradients")
        assert await told(services, node[0]) == wanted  # its snapshot is still to come
        await answer(agent, job, 0, request["id"], "snapshot")
        assert await told(services, node[0]) == msgspec.structs.replace(wanted, ranks=(1,))
        second = await ask(client, job)
        assert (second.status_code, second.json()["code"]) == (409, "already_recording_gradients")
        assert "rank 1 has not answered yet" in second.json()["detail"]
        await answer(agent, job, 1, request["id"], "gradients", error="this rank has computed no micro-batch of step 8")
    assert await told(services, node[0]) is None
    found = (await client.get(f"{JOBS}/{job.id}/gradients")).json()
    assert (found["request"]["state"], found["request"]["answered"], found["request"]["step"]) == ("done", 2, 8)
    assert [(each["step"], each["failed"]) for each in found["steps"]] == [(8, 1)]
    events = (await client.get(f"{JOBS}/{job.id}/events")).json()["items"]
    assert "the gradients of the next step were asked for, with snapshots" in [event["message"] for event in events]
    assert (await ask(client, job)).status_code == 201


async def test_a_request_ends_with_its_generation(
    client: httpx.AsyncClient, services: Services, node: tuple[NodeRow, str], job: JobRow
) -> None:
    request = (await ask(client, job)).json()
    async with services.write() as session:
        generation = await session.get_one(GenerationRow, (job.id, 1))
        generation.ended_at = START
    assert (await newest(client, job))["state"] == "missed"
    assert await told(services, node[0]) is None
    assert (await ask(client, job)).json()["id"] != request["id"]


@pytest.mark.parametrize("order", [{"names": []}, {"names": [""]}, {"names": ["x" * 201]}, {"snapshots": "perhaps"}, {"names": ["*"] * 65}])
async def test_an_order_that_no_spec_could_give_is_refused(client: httpx.AsyncClient, job: JobRow, order: dict[str, Any]) -> None:
    refused = await ask(client, job, **order)
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")


async def test_only_running_jobs_of_ours_can_be_asked(client: httpx.AsyncClient, services: Services) -> None:
    script = factories.job_spec(model=None, data=None, training=None, script={"path": "x.py"})
    async with services.write() as session:
        waiting = await factories.create_job(session)
        foreign = await factories.create_job(session, spec=script, state=JobState.RUNNING)
    for each, code, words in (
        (waiting, "job_not_running", "gradients are recorded of a running job"),
        (foreign, "cannot_record_gradients", "open paceline.intercept_gradients in its loop"),
    ):
        refused = await ask(client, each)
        assert (refused.status_code, refused.json()["code"]) == (409, code)
        assert words in refused.json()["detail"]


async def test_a_rank_that_could_not_do_what_was_asked_is_there_once(
    client: httpx.AsyncClient, connect: Connect, node: tuple[NodeRow, str], job: JobRow
) -> None:
    """It has told why, and at the same step it has recorded what the spec chooses."""
    request = (await ask(client, job, snapshots=True)).json()["id"]
    async with connect(node[1]) as agent:
        for rank in (0, 1):
            await answer(agent, job, rank, request, "gradients", error="too large", name="refused")
        await answer(agent, job, 0, None, "gradients")
    found = (await client.get(f"{JOBS}/{job.id}/gradients/8")).json()
    assert [(each["rank"], each["state"]) for each in found["ranks"]] == [(0, "arriving"), (1, "failed")]
