"""A queue that does not fit costs next to nothing while nothing changes, and is looked at again as soon as something does."""

from __future__ import annotations

from contextvars import ContextVar

import pytest
from sqlalchemy import event

from paceline.api.loops import elasticity, placing, quiet_scripts
from paceline.api.loops.scheduler import Scheduler
from tests.integration.conftest import Cluster

ELASTIC = {"parallelism": {"strategy": "ddp"}, "resources": {"nodes": 1}, "training": {"steps": 100, "global_batch_size": 12}}


async def test_a_queue_that_does_not_fit_is_placed_once_until_something_changes(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[str] = []

    def counted(name: str, work: object) -> object:
        def count(*arguments: object, **named: object) -> object:
            looks.append(name)
            return work(*arguments, **named)  # type: ignore[operator]

        return count

    agent = await cluster.add_agent(slots=1)
    running = await cluster.submit(**ELASTIC)
    await cluster.until_job(running, "running")
    waiting = [await cluster.submit() for _ in range(3)]
    scheduler = Scheduler(cluster.services)
    for _ in range(3):
        await scheduler.step_once(cluster.now())
    monkeypatch.setattr(placing, "place", counted("place", placing.place))  # type: ignore[attr-defined]
    monkeypatch.setattr(elasticity, "plan_gangs", counted("plan_gangs", elasticity.plan_gangs))  # type: ignore[attr-defined]
    for _ in range(5):
        await scheduler.step_once(cluster.now())
    assert looks == []
    one_more = await cluster.submit()
    await scheduler.step_once(cluster.now())
    assert looks == ["place", "plan_gangs"]
    assert (await cluster.job(one_more))["pending"]["code"] == "slots_taken"
    await agent.complete(running)
    states: list[str] = []
    while "starting" not in states:
        await scheduler.step_once(cluster.now())
        states = [(await cluster.job(job_id))["state"] for job_id in (*waiting, one_more)]
    assert states.count("queued") == 3


async def test_a_waiting_job_is_placed_when_a_node_is_uncordoned(cluster: Cluster) -> None:
    await cluster.add_agent(slots=1)
    node = (await cluster.nodes())["a"]
    job_id = await cluster.submit()
    cordon = await cluster.client.put(f"/api/v1/cluster/nodes/{node['id']}/cordon", headers={"If-Match": "*"})
    assert cordon.status_code == 200, cordon.text
    scheduler = Scheduler(cluster.services)
    for _ in range(3):
        await scheduler.step_once(cluster.now())
    assert (await cluster.job(job_id))["pending"]["code"] == "nodes_unavailable"
    assert (await cluster.client.put(f"/api/v1/cluster/nodes/{node['id']}/uncordon", headers={"If-Match": "*"})).status_code == 200
    await scheduler.step_once(cluster.now())
    assert (await cluster.job(job_id))["state"] in ("starting", "running")


async def test_a_job_that_trains_costs_the_scheduler_few_statements(cluster: Cluster) -> None:
    """Each step asked 13 of them, and 17 where another job waited, for as long as any job ran."""
    await cluster.add_agent(slots=1)
    await cluster.until_job(await cluster.submit(), "running")
    scheduler, asked = Scheduler(cluster.services), list[str]()
    engine = cluster.services.control.engine.sync_engine

    ours = ContextVar("ours", default=False)  # what the app does beside it has another context

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if ours.get():
            asked.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    ours.set(True)
    for _ in range(3):
        asked.clear()
        await scheduler.step_once(cluster.now())
    event.remove(engine, "before_cursor_execute", note)
    assert 0 < len(asked) <= 10, asked


async def test_a_phase_is_run_once_more_after_its_last_job(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgets what it has noted of that job, which the dashboard would else show as held up for ever."""
    await cluster.add_agent(slots=1)
    await cluster.until_job(await cluster.submit(), "running")
    scheduler, runs = Scheduler(cluster.services), list[str]()

    async def ran(services: object, now: object) -> None:
        runs.append("hangs")

    monkeypatch.setattr(quiet_scripts, "step_once", ran)
    counted = []
    for was_quiet in (False, True, False, False):
        scheduler._done = scheduler._done._replace(quiet=was_quiet)
        await scheduler.step_once(cluster.now())
        counted.append(len(runs))
    assert counted == [0, 1, 1, 1]
