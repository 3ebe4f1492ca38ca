"""A stored spec that this version refuses: shown with the reason, left alone, in nobody's way."""

from __future__ import annotations

from typing import Any

from sqlalchemy import update

from paceline.api.services.specs import stored_specs
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.training.spec.stored import StoredSpec
from tests.integration.conftest import JOBS, Cluster

NONSENSE: list[Any] = [{"nonsense": 1}, {"version": 99}, {"model": {"kind": "quantum"}}]


async def damage(cluster: Cluster, job_id: str, change: dict[str, Any]) -> dict[str, Any]:
    """As a later release would see it that has tightened a rule."""
    async with cluster.services.write() as session:
        job = await job_rows.get(session, job_id)
        assert job is not None
        spec: dict[str, Any] = {**job.spec.document, **change}
        await session.execute(update(JobRow).where(JobRow.id == job_id).values(spec=StoredSpec(spec)))
    return spec


async def test_an_unreadable_queued_job_is_shown_waits_and_can_be_cancelled_and_others_are_placed(cluster: Cluster) -> None:
    bad = [await cluster.submit() for _ in NONSENSE]
    specs = [await damage(cluster, job_id, change) for job_id, change in zip(bad, NONSENSE, strict=True)]
    await cluster.add_agent(slots=2)
    good = await cluster.submit()
    await cluster.until_job(good, "running")
    for job_id, spec in zip(bad, specs, strict=True):
        job = await cluster.job(job_id)
        assert (job["state"], job["spec"], job["stored_spec"], job["pending"]["code"]) == ("queued", None, spec, "unreadable_spec")
    assert "nonsense" in (await cluster.job(bad[0]))["unreadable"]
    items = {item["id"]: item for item in (await cluster.client.get(JOBS)).json()["items"]}
    assert [items[job_id]["model"] for job_id in (*bad, good)] == ["unknown", "unknown", "unknown", "mlp"]
    refused = await cluster.ask("PUT", bad[0], "/resize", {"nodes": 2})
    assert (refused.status_code, refused.json()["code"]) == (409, "unreadable_spec")
    for job_id in bad:
        assert (await cluster.ask("DELETE", job_id)).status_code == 200
        await cluster.until_job(job_id, "cancelled")
    assert [event for event in await cluster.events(bad[0]) if event["type"] == "job.held_up"] == []


async def test_ranks_of_an_unreadable_job_run_on_and_its_node_is_told_of_the_others(cluster: Cluster) -> None:
    agent = await cluster.add_agent(slots=3)
    bad, leaving = await cluster.submit(), await cluster.submit()
    for job_id in (bad, leaving):
        await cluster.until_job(job_id, "running")
        await damage(cluster, job_id, {"nonsense": 1})
    good = await cluster.submit()
    await cluster.until_job(good, "running")
    assert (agent.action(bad), agent.action(good)) == ("run", "run")
    await agent.save_checkpoint(bad, 5)
    assert (await cluster.checkpoints(bad))[0]["deleted_next"] is False
    assert (await cluster.ask("DELETE", leaving)).status_code == 200
    await cluster.until_job(leaving, "cancelled")
    await agent.complete(bad)
    await cluster.until_job(bad, "completed")
    answer = await cluster.client.get(f"{JOBS}/{bad}/performance")
    assert (answer.status_code, answer.json()["code"]) == (409, "unreadable_spec")


async def test_a_fault_of_an_unreadable_job_waits_for_a_version_that_reads_it(cluster: Cluster) -> None:
    agent = await cluster.add_agent(slots=1)
    job_id = await cluster.submit()
    await cluster.until_job(job_id, "running")
    was = await damage(cluster, job_id, {"nonsense": 1})
    await agent.crash(job_id, 0, kind="signal")
    for _ in range(3):
        await cluster.step()
    assert (await cluster.job(job_id))["state"] == "running"
    del was["nonsense"]
    async with cluster.services.write() as session:
        await session.execute(update(JobRow).where(JobRow.id == job_id).values(spec=StoredSpec(was)))
    await cluster.until_job(job_id, "running", generation=2)


def test_a_spec_is_parsed_once() -> None:
    from tests import factories

    jobs = [JobRow(id=str(number), spec=StoredSpec(factories.job_spec(name="once").model_dump(mode="json"))) for number in range(3)]
    assert stored_specs.spec_of(jobs[0]) is stored_specs.spec_of(jobs[1]) is stored_specs.spec_of(jobs[2])
