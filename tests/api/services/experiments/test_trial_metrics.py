"""The metric of each trial, read once more when the last of its points are here, and never from another job than the trial's own."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from sqlalchemy import select, update

from paceline.api.core.context import Services
from paceline.api.services.experiments import trial_metrics
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.cluster.states import JobState, RankState
from paceline.db.models.experiments import TrialRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import experiments as rows
from paceline.monitoring.points import RankBatch
from tests import factories
from tests.api.test_experiments import EXPERIMENTS, Found, document, end, post, read, step, trials
from tests.factories import START


@pytest.fixture
async def node(services: Services) -> NodeRow:
    async with services.write() as session:
        return (await factories.create_node(session))[0]


async def ended_job(services: Services, node: NodeRow, name: str, state: JobState = JobState.COMPLETED) -> JobRow:
    """The job has ended, though its rank has records that have not been sent."""
    await end(services, name, state=state)
    async with services.write() as session:
        job = (await session.scalars(select(JobRow).where(JobRow.name == name))).one()
        job.generation, job.progress, job.state_since = 1, {"step": 10, "total_steps": 10}, services.now()
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=1, started_at=START, ended_at=START, store_token="t"))
        await session.flush()
        where = {"node_id": node.id, "slot": 0, "local_rank": 0, "node_rank": 0, "updated_at": START}
        session.add(RankRow(job_id=job.id, generation=1, rank=0, **where, state=RankState.EXITED, drained=False))
    return job


async def arrive(app: Any, job: JobRow, first: int, last: int, **values: Any) -> None:
    writer: MetricsWriter = app.state.writer
    await writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=factories.records(first, last - first + 1, **values))])


async def drain(services: Services, job: JobRow) -> None:
    async with services.write() as session:
        await session.execute(update(RankRow).where(RankRow.job_id == job.id).values(drained=True))


async def only_trial(client: httpx.AsyncClient, experiment: Found) -> Found:
    (found,) = await trials(client, experiment)
    return found


ONE: Found = {"grid": {"optimizer.lr": [0.1]}}


async def with_points_missing(app: Any, client: httpx.AsyncClient, services: Services, node: NodeRow) -> tuple[Found, JobRow]:
    """An experiment, and the job of its only trial, which has ended and of whose ten points the first eight are here."""
    experiment = await post(client, **ONE)
    await step(services)
    job = await ended_job(services, node, "lr-0")
    await arrive(app, job, 1, 8)
    return experiment, job


async def test_the_metric_of_a_trial_is_of_its_last_step_though_that_arrives_late(
    app: Any, client: httpx.AsyncClient, services: Services, node: NodeRow
) -> None:
    experiment, job = await with_points_missing(app, client, services, node)
    await step(services)
    early = (await only_trial(client, experiment))["metric"]
    assert (await read(client, experiment))["state"] == "running", "its best trial is not known yet"
    await arrive(app, job, 9, 10)
    await drain(services, job)
    await step(services)
    assert (await only_trial(client, experiment))["metric"] < early
    assert (await read(client, experiment))["state"] == "completed"


async def test_an_experiment_does_not_wait_for_ever_for_what_a_node_keeps(
    app: Any, client: httpx.AsyncClient, services: Services, node: NodeRow
) -> None:
    experiment, job = await with_points_missing(app, client, services, node)
    async with services.write() as session:
        long_ago = services.now() - trial_metrics.LATEST_POINTS
        await session.execute(update(JobRow).where(JobRow.id == job.id).values(state_since=long_ago))
    await step(services)
    assert (await only_trial(client, experiment))["metric"] is not None
    assert (await read(client, experiment))["state"] == "completed"


async def test_a_trial_that_runs_anew_does_not_take_the_metric_of_its_former_job(
    app: Any, client: httpx.AsyncClient, services: Services, node: NodeRow
) -> None:
    """The experiment is posted again while the points of the former job are read."""
    experiment = await post(client, **ONE)
    await step(services)
    job = await ended_job(services, node, "lr-0", JobState.FAILED)
    await arrive(app, job, 1, 10)
    await drain(services, job)
    async with services.control.read() as session:
        row, looked_at = await rows.get(session, experiment["id"]), await rows.trials(session, experiment["id"])
    await post(client, **ONE)
    assert row is not None
    assert await trial_metrics.refresh(services, row, looked_at, services.now())
    async with services.control.read() as session:
        ((trial, _),) = await rows.trials(session, experiment["id"])
    assert (trial.job_id, trial.metric, trial.metric_step, trial.metric_is_final) == (None, None, 0, False)


async def completed_by_loss(app: Any, client: httpx.AsyncClient, services: Services, node: NodeRow) -> Found:
    """An experiment whose only trial has completed, with a loss and an accuracy of 0.75."""
    experiment = await post(client, **ONE)
    await step(services)
    job = await ended_job(services, node, "lr-0")
    await arrive(app, job, 1, 10, eval_accuracy=0.75)
    await drain(services, job)
    await step(services)
    assert (await read(client, experiment))["best_metric"] not in (None, 0.75)
    return experiment


ACCURACY: Found = {"metric": {"name": "eval_accuracy", "goal": "maximize"}}


async def test_posted_again_with_another_metric_it_shows_that_one_of_trials_that_have_ended(
    app: Any, client: httpx.AsyncClient, services: Services, node: NodeRow
) -> None:
    """Losses were taken for accuracies, and the worst trial for the best."""
    experiment = await completed_by_loss(app, client, services, node)
    again = await post(client, **ONE, **ACCURACY)
    assert (again["best_metric"], (await only_trial(client, experiment))["metric"]) == (None, None), "not read yet"
    await step(services)
    found, trial = await read(client, experiment), await only_trial(client, experiment)
    assert (found["state"], found["best_metric"], trial["metric"], trial["reused"]) == ("completed", 0.75, 0.75, True)


async def test_a_metric_that_was_read_while_another_one_was_asked_for_is_not_stored(
    app: Any, client: httpx.AsyncClient, services: Services, node: NodeRow
) -> None:
    experiment, job = await with_points_missing(app, client, services, node)
    async with services.control.read() as session:
        row, looked_at = await rows.get(session, experiment["id"]), await rows.trials(session, experiment["id"])
    await drain(services, job)
    await post(client, **ONE, **ACCURACY)
    assert row is not None
    assert await trial_metrics.refresh(services, row, looked_at, services.now())
    assert ((await only_trial(client, experiment))["metric"], (await read(client, experiment))["best_metric"]) == (None, None)


async def test_a_halving_that_has_compared_its_trials_keeps_its_metric(client: httpx.AsyncClient, services: Services) -> None:
    halved: Found = {**ONE, "halving": {"min_steps": 2}}
    experiment = await post(client, **halved)
    assert (await post(client, **halved, **ACCURACY))["id"] == experiment["id"], "nothing is compared yet"
    async with services.write() as session:
        await session.execute(update(TrialRow).values(rungs=[{"steps": 2, "value": 0.5}]))
    refused = await client.post(EXPERIMENTS, json=document(**halved))
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/metric/name")
    assert (await read(client, experiment))["spec"]["metric"]["name"] == "eval_accuracy"


async def test_a_halving_that_has_compared_its_trials_keeps_its_goal(client: httpx.AsyncClient, services: Services) -> None:
    """The best of the trials that the wrong goal had chosen was called the best."""
    halved: Found = {**ONE, "halving": {"min_steps": 2}}
    await post(client, **halved, metric={"name": "eval_accuracy"})
    async with services.write() as session:
        await session.execute(update(TrialRow).values(rungs=[{"steps": 2, "value": 0.5}]))
    refused = await client.post(EXPERIMENTS, json=document(**halved, **ACCURACY))
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/metric/goal")
    assert "compared its trials by eval_accuracy (minimize), and cannot go on by eval_accuracy (maximize)" in refused.json()["detail"]
    assert (await client.post(EXPERIMENTS, json=document(**halved, metric={"name": "eval_accuracy"}))).status_code == 200
