"""Experiments over a whole cluster: real jobs on simulated agents, and coordinators that die in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from paceline.api.loops import experiments as loop
from paceline.api.main import create_app
from paceline.api.services.jobs import submission
from paceline.api.settings import Settings
from tests import factories
from tests.conftest import BASE_URL
from tests.integration.conftest import JOBS, Cluster
from tests.simulated_agent import SimulatedAgent

EXPERIMENTS = "/api/v1/experiments"
Trials = list[dict[str, Any]]


async def post(cluster: Cluster, **changes: Any) -> str:
    job = factories.job_spec().model_dump(mode="json", exclude={"name", "project", "labels"})
    document = {"name": "lr", "job": job, "grid": {"optimizer.lr": [0.1, 0.01]}} | changes
    answer = await cluster.client.post(EXPERIMENTS, json=document)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["id"])


async def trials(cluster: Cluster, experiment_id: str) -> Trials:
    found: Trials = (await cluster.client.get(f"{EXPERIMENTS}/{experiment_id}/trials")).json()["items"]
    return found


async def until_trials(cluster: Cluster, experiment_id: str, condition: Callable[[Trials], bool]) -> Trials:
    async def look() -> Trials:
        await loop.step_once(cluster.services, cluster.now())
        return await trials(cluster, experiment_id)

    return await cluster.until_seen(look, condition)


def job_states(found: Trials) -> list[str | None]:
    return [trial["job"]["state"] if trial["job"] else None for trial in found]


async def run_trial(cluster: Cluster, agent: SimulatedAgent, experiment_id: str, index: int) -> None:
    """Wait until this trial trains, and let it end."""
    found = await until_trials(cluster, experiment_id, lambda found: job_states(found)[index] == "running")
    await agent.complete(found[index]["job"]["id"])


async def number_of_jobs(cluster: Cluster) -> int:
    return len((await cluster.client.get(JOBS, params={"fields": "id"})).json()["items"])


async def test_trials_run_one_behind_the_other_where_there_is_one_slot(cluster: Cluster) -> None:
    agent = await cluster.add_agent("a", slots=1)
    experiment_id = await post(cluster, repeats=2)
    for index in (0, 2, 3, 1):  # the second round goes backwards
        await run_trial(cluster, agent, experiment_id, index)
    await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["completed"] * 4)
    await loop.step_once(cluster.services, cluster.now())
    assert (await cluster.client.get(f"{EXPERIMENTS}/{experiment_id}")).json()["state"] == "completed"
    assert await number_of_jobs(cluster) == 4


async def test_the_next_trial_waits_in_the_queue_before_the_one_before_it_has_ended(cluster: Cluster) -> None:
    agent = await cluster.add_agent("a", slots=1)
    experiment_id = await post(cluster)
    found = await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["running", "queued"])
    await agent.complete(found[0]["job"]["id"])
    await cluster.until_job(found[1]["job"]["id"], "running")  # the scheduler alone has seen to it


async def test_the_best_trial_is_the_one_that_ends_best_wherever_it_is_asked_for(cluster: Cluster) -> None:
    """The first trial is lower on the way, the second one at its end."""
    agent = await cluster.add_agent("a", slots=1)
    experiment_id = await post(cluster)
    for index, losses in enumerate(([0.9, 0.1, 0.8], [0.9, 0.5, 0.3])):
        found = await until_trials(cluster, experiment_id, lambda found, at=index: job_states(found)[at] == "running")
        for step, loss in enumerate(losses, start=1):
            await agent.record(found[index]["job"]["id"], step, loss=loss)
        await agent.complete(found[index]["job"]["id"])
    await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["completed", "completed"])
    await until_trials(cluster, experiment_id, lambda found: [trial["metric"] for trial in found] == [0.8, 0.3])
    listed = (await cluster.client.get(EXPERIMENTS)).json()["items"][0]
    assert (listed["best_trial"], listed["best_metric"]) == (1, 0.3)
    analysis = (await cluster.client.post(f"{EXPERIMENTS}/{experiment_id}/analyze")).json()["analysis"]
    assert (analysis["best_trial"], analysis["best"]) == (1, 1)
    assert [each["metric"]["value"] for each in analysis["configurations"]] == [0.8, 0.3]


async def test_the_speed_of_a_trial_is_that_of_its_report_not_of_its_last_step(cluster: Cluster) -> None:
    """A slow first step and a slow last one: half of the batch of 8 in a second."""
    agent = await cluster.add_agent("a", slots=1)
    experiment_id = await post(cluster, grid={"optimizer.lr": [0.1]})
    found = await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["running"])
    seconds = [9.0, 2.0, 2.0, 2.0, 2.0, 4.0]
    for step, took in enumerate(seconds, start=1):
        await agent.record(found[0]["job"]["id"], step, step_seconds=took, samples=8.0, samples_per_second=8 / took, loss=1.0)
    await agent.complete(found[0]["job"]["id"])
    await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["completed"])
    found = await until_trials(cluster, experiment_id, lambda found: found[0]["job"]["samples_per_second"] == 4.0)
    analysis = (await cluster.client.post(f"{EXPERIMENTS}/{experiment_id}/analyze")).json()["analysis"]
    (reported,) = [each["samples_per_second"]["value"] for each in analysis["configurations"]]
    assert found[0]["job"]["samples_per_second"] == reported


async def test_pause_and_resume_as_one(cluster: Cluster) -> None:
    agent = await cluster.add_agent("a", slots=2)
    experiment_id = await post(cluster, repeats=2)
    running = await until_trials(cluster, experiment_id, lambda found: job_states(found).count("running") == 2)
    begun = {trial["job"]["id"] for trial in running if trial["job"]}
    await cluster.client.put(f"{EXPERIMENTS}/{experiment_id}/pause")
    await until_trials(cluster, experiment_id, lambda found: {trial["state"] for trial in found} == {"paused", "waiting"})
    await cluster.until(lambda: not agent.ranks, "its slots are free")
    await cluster.client.put(f"{EXPERIMENTS}/{experiment_id}/resume")
    again = await until_trials(cluster, experiment_id, lambda found: job_states(found).count("running") == 2)
    assert {trial["job"]["id"] for trial in again if trial["job"] and trial["job"]["state"] == "running"} <= begun


async def test_cancel_as_one(cluster: Cluster) -> None:
    await cluster.add_agent("a", slots=1)
    experiment_id = await post(cluster)
    await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["running", "queued"])
    await cluster.client.delete(f"{EXPERIMENTS}/{experiment_id}")
    await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["cancelled", "cancelled"])


class KilledError(BaseException):
    """The process is gone, whatever it was at."""


@pytest.mark.parametrize("statement", ["before the job", "between job and trial"])
async def test_a_coordinator_that_dies_while_it_submits_has_submitted_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    experiment_id, store = await post(cluster), submission.store

    async def die(*arguments: Any) -> Any:
        if statement == "between job and trial":
            await store(*arguments)
        raise KilledError

    monkeypatch.setattr(submission, "store", die)
    with pytest.raises(KilledError):
        await loop.step_once(cluster.services, cluster.now())
    monkeypatch.undo()
    assert await number_of_jobs(cluster) == 0, "the job was in the transaction of its trial"
    await loop.step_once(cluster.services, cluster.now())
    assert (await number_of_jobs(cluster), job_states(await trials(cluster, experiment_id))) == (1, ["queued", None])


async def test_a_coordinators_successor_goes_on_in_the_middle(cluster: Cluster, settings: Settings) -> None:
    agent = await cluster.add_agent("a", slots=1)
    experiment_id = await post(cluster)
    before = await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["running", "queued"])
    successor = create_app(settings, with_loops=False)
    async with successor.router.lifespan_context(successor):
        await agent.lose_coordinator(successor)
        transport = httpx.ASGITransport(app=successor)
        other = Cluster(successor, httpx.AsyncClient(transport=transport, base_url=BASE_URL, headers=cluster.client.headers))
        await other.step()
        await agent.connect()
        for index in (0, 1):
            await run_trial(other, agent, experiment_id, index)
        after = await until_trials(other, experiment_id, lambda found: job_states(found) == ["completed", "completed"])
        await agent.disconnect()
    assert [trial["job"]["id"] for trial in after] == [trial["job"]["id"] for trial in before], "no trial has run twice"


async def test_two_coordinators_at_once_submit_each_trial_once(cluster: Cluster) -> None:
    """A holder of the lease that stalled may wake up beside its successor."""
    await cluster.add_agent("a", slots=2)
    experiment_id = await post(cluster, repeats=3)
    await asyncio.gather(*(loop.step_once(cluster.services, cluster.now()) for _ in range(3)))
    found = await trials(cluster, experiment_id)
    started = [trial for trial in found if trial["job"]]
    assert await number_of_jobs(cluster) == len(started) >= 2


async def test_a_trial_is_run_longer_from_its_newest_checkpoint(cluster: Cluster) -> None:
    agent = await cluster.add_agent(slots=2)
    experiment_id = await post(cluster)
    extend = f"{EXPERIMENTS}/{experiment_id}/extend"
    early = await cluster.client.post(extend, json={"steps": 500})
    assert (early.status_code, early.json()["code"]) == (409, "checkpoint_not_usable")
    assert "none has a metric; name one with trial" in early.json()["detail"]
    found = await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["running", "running"])
    for step in (20, 40):
        await agent.save_checkpoint(found[1]["job"]["id"], step)
    for each in found:
        await agent.complete(each["job"]["id"])
    await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["completed", "completed"])
    for body, words in (
        ({"steps": 500, "trial": 0}, "has no checkpoint to go on from"),
        ({"steps": 500, "trial": 7}, "has no trial 7"),
        ({"steps": 40, "trial": 1}, "pass steps above 40"),
    ):
        refused = await cluster.client.post(extend, json=body)
        assert words in refused.json()["detail"]
    answer = await cluster.client.post(extend, json={"steps": 500, "trial": 1})
    assert answer.status_code == 201, answer.text
    job = answer.json()
    assert job["name"] == f"{found[1]['job']['name']}-longer"
    assert job["spec"]["training"]["steps"] == 500
    await cluster.until_job(job["id"], "running")
    assert agent.worlds(job["id"])[0].restore_from[0].endswith("step-40.g1")
    assert len(await trials(cluster, experiment_id)) == 2, "it is no trial"


async def test_what_a_pool_may_grow_to_hold_waits_for_it_as_other_jobs_do(cluster: Cluster) -> None:
    """It ended as a refusal, while the same job by itself would have waited for the nodes."""
    pool = {
        "name": "lab", "provider": {"type": "ssh", "hosts": ["ada@gpu1", "ada@gpu2"]}, "slots": 4, "max_nodes": 2,
        "autoscale": {"device": "cpu", "discards_checkpoints": True},
    }  # fmt: skip
    assert (await cluster.client.put("/api/v1/cluster/pools/lab", json=pool)).status_code == 200
    agent = await cluster.add_agent(slots=2)
    ddp = factories.job_spec().model_dump(mode="json", exclude={"name", "project", "labels", "resources"})
    experiment_id = await post(cluster, grid={"resources.slots": [1, 8]}, job=ddp | {"parallelism": {"strategy": "ddp"}})
    await run_trial(cluster, agent, experiment_id, 0)
    found = await until_trials(cluster, experiment_id, lambda found: job_states(found) == ["completed", "queued"])

    async def why() -> str | None:
        pending = (await cluster.client.get(f"{JOBS}/{found[1]['job']['id']}")).json()["pending"]
        return pending and str(pending["code"])

    await cluster.until_seen(why, lambda code: code == "cluster_too_small")
    for _ in range(4):
        await loop.step_once(cluster.services, cluster.now())
    found = await trials(cluster, experiment_id)
    assert (found[1]["refusal"], job_states(found)[1]) == (None, "queued")
    assert (await cluster.client.get(f"{EXPERIMENTS}/{experiment_id}")).json()["state"] == "running"
    await cluster.add_agent("large", slots=8)
    await until_trials(cluster, experiment_id, lambda found: job_states(found)[1] == "running")


async def test_what_no_node_would_hold_ends_as_a_refusal_with_the_reason(cluster: Cluster) -> None:
    agent = await cluster.add_agent(slots=2)
    ddp = factories.job_spec().model_dump(mode="json", exclude={"name", "project", "labels", "resources"})
    ddp |= {"parallelism": {"strategy": "ddp"}}
    experiment_id = await post(cluster, grid={"resources.slots": [1, 8]}, job=ddp, budget={"trials": 2})
    await run_trial(cluster, agent, experiment_id, 0)
    found = await until_trials(cluster, experiment_id, lambda found: found[1]["refusal"] is not None)
    assert "needs 8" in found[1]["refusal"]
    assert "post the experiment again once it can be held" in found[1]["refusal"]

    async def look() -> str:
        await loop.step_once(cluster.services, cluster.now())
        return str((await cluster.client.get(f"{EXPERIMENTS}/{experiment_id}")).json()["state"])

    await cluster.until_seen(look, lambda state: state == "completed")
    await cluster.add_agent("large", slots=8)
    assert await post(cluster, grid={"resources.slots": [1, 8]}, job=ddp, budget={"trials": 2}) == experiment_id
    await until_trials(cluster, experiment_id, lambda found: job_states(found)[1] == "running")
