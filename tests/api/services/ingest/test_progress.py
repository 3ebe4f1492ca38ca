"""When a generation took its first step, told by its own first record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import update

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.loops import scheduler
from paceline.api.services.checkpoints.checkpoints import not_finite_since
from paceline.api.services.ingest import history_room
from paceline.api.services.ingest.progress import ProgressKeeper
from paceline.api.services.lifecycle import job_lifecycle
from paceline.api.services.specs.script_stops import stop_of
from paceline.cluster.states import JobState, RankState
from paceline.db.models.jobs import GenerationRow, JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import progress as progress_rows
from paceline.monitoring.points import MetricRecord, RankBatch
from paceline.training.link import FailureReport
from paceline.training.spec.job import JobSpec
from tests import factories
from tests.api.loops.test_retention import waits_for_a_lock
from tests.factories import MetricValues
from tests.waiting import until


async def first_step_of(services: Services, job_id: str) -> datetime | None:
    async with services.control.read() as session:
        return (await session.get_one(GenerationRow, (job_id, 1))).first_step_at


async def test_the_earliest_record_tells_even_after_a_restart(services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    began = services.now().timestamp() - 60
    for first_step, age in ((1, 0.0), (30, 30.0)):  # the second keeper is that of a coordinator started again
        keeper = ProgressKeeper(services)
        record = MetricRecord(seq=1, step=first_step, time=began + age, values={})
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=[record]))
        await keeper.flush()
        found = await first_step_of(services, job.id)
        assert found is not None
        assert abs(found.timestamp() - began) < 0.01


async def test_jobs_that_have_ended_are_forgotten(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job ends after its last records are stored, so none of these told that it had: what is kept of it stayed in memory for good."""
    monkeypatch.setattr("paceline.api.services.ingest.progress.FORGET_SECONDS", 0.0)
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        ends, goes_on = [await factories.create_running_job(session, node) for _ in range(2)]
    keeper = ProgressKeeper(services)
    await tell(keeper, ends, [(1, 2.0)])
    async with services.write() as session:
        job = await session.get_one(JobRow, ends.id)
        job.state, job.ended_at = JobState.COMPLETED, services.now()
    async with keeper.running():
        record = MetricRecord(seq=1, step=1, time=services.now().timestamp(), values={})
        keeper.note(RankBatch(job_id=goes_on.id, generation=1, rank=0, metrics=[record]))
        await until(lambda: keeper._tracks.keys() == {goes_on.id}, "the end of the other job")


async def test_late_news_of_an_older_generation_counts_up_to_where_the_newest_went_on(services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
        session.add(GenerationRow(job_id=job.id, generation=2, world_size=1, started_at=services.now(), start_step=52, store_token="t"))
        (await session.get_one(JobRow, job.id)).generation = 2
    keeper = ProgressKeeper(services)
    for step, told in ((31, 31), (52, 52), (53, 52)):  # the last one was never committed by who goes on
        record = MetricRecord(seq=step, step=step, time=services.now().timestamp(), values={})
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=[record]))
        await keeper.flush()
        async with services.control.read() as session:
            progress = (await session.get_one(JobRow, job.id)).progress
            assert progress is not None
            assert progress["step"] == told


async def test_late_news_from_before_a_job_was_set_back_does_not_bring_the_old_step_back(services: Services) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node, generation=4, progress={"step": 900, "loss": 0.1})
        job.state = JobState.FAILED
        await session.flush()
        session.add(checkpoint := factories.checkpoint(job, node, step=500))
        await session.flush()
        await job_lifecycle.set_back(session, job, checkpoint, None, SYSTEM, services.now())
    await tell(ProgressKeeper(services), job, [(400, 2.0), (1000, 0.1)], generation=4)
    async with services.control.read() as session:
        progress = (await session.get_one(JobRow, job.id)).progress
    assert progress is not None
    assert (progress["step"], "loss" in progress, "best_loss" in progress) == (500, False, False)


async def test_throughput_is_that_of_the_last_steps_together(services: Services, client: httpx.AsyncClient) -> None:
    """The newest step alone jumps between 100 and 10,000."""
    job = await running(services)
    keeper = ProgressKeeper(services)
    for step in range(1, 121):
        rate = 10_000.0 if step % 2 else 100.0
        values: dict[str, Any] = {"samples_per_second": rate, "tokens_per_second": 0.0, "mfu": "NaN" if step == 120 else 0.5}
        record = MetricRecord(seq=step, step=step, time=services.now().timestamp(), values=values)
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=[record]))
    await keeper.flush()
    progress, _ = await told(client, job)
    assert progress["samples_per_second"] == pytest.approx(2 / (1 / 10_000 + 1 / 100))
    assert (progress["tokens_per_second"], progress["mfu"]) == (0, 0.5)


SCRIPT = {"name": "digits", "script": {"path": "train.py"}}


async def running(services: Services, spec: dict[str, Any] | None = None, **columns: Any) -> JobRow:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        return await factories.create_running_job(session, node, spec=JobSpec.model_validate(spec or SCRIPT), **columns)


async def tell(keeper: ProgressKeeper, job: JobRow, losses: Iterable[tuple[int, Any]], generation: int = 1) -> None:
    """Each in a transaction of its own."""
    for step, loss in losses:
        record = MetricRecord(seq=step, step=step, time=keeper.services.now().timestamp(), values={"loss": loss})
        keeper.note(RankBatch(job_id=job.id, generation=generation, rank=0, metrics=[record]))
        await keeper.flush()


async def told(client: httpx.AsyncClient, job: JobRow) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """(the job's progress, its events about losses)."""
    found = (await client.get(f"/api/v1/training/jobs/{job.id}")).json()
    events = (await client.get(f"/api/v1/training/jobs/{job.id}/events?limit=200")).json()["items"]
    return found["progress"], [event for event in events if event["type"].startswith("job.loss_")]


async def test_a_loss_that_is_not_finite_is_told_once_with_its_first_step(services: Services, client: httpx.AsyncClient) -> None:
    """A job of NaN completed without a word."""
    job = await running(services)
    await tell(ProgressKeeper(services), job, [(10, 1.0), (11, "NaN"), (12, "Infinity")])
    await tell(ProgressKeeper(services), job, [(13, "NaN"), (14, 1.0)])  # that of a coordinator started again
    progress, events = await told(client, job)
    assert (progress["step"], progress["not_finite_step"]) == (14, 11)
    assert progress["bad_loss"]["what"] == "the loss of step 11 is NaN"
    assert [(event["type"], event["data"]["step"], event["data"]["act"]) for event in events] == [("job.loss_not_finite", 11, "warn")]


async def test_a_spike_of_a_script_is_an_event_once_for_an_episode_and_a_notice_for_a_while(
    services: Services, client: httpx.AsyncClient
) -> None:
    job = await running(services)
    keeper = ProgressKeeper(services)
    records = [MetricRecord(seq=step, step=step, time=services.now().timestamp(), values={"loss": 1.0}) for step in range(1, 50)]
    keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=records))
    await tell(keeper, job, [(50, 9.0), (51, 9.5), (52, 1.0)])
    progress, events = await told(client, job)
    assert [(event["type"], event["data"]["step"]) for event in events] == [("job.loss_spike", 50)]
    assert progress["bad_loss"]["what"] == "the loss of step 50 is a spike: 9, above the limit of 1.2"
    assert progress["bad_loss"]["done"] == "training goes on"
    assert progress["not_finite_step"] is None
    await tell(keeper, job, [(551, 1.0)])
    assert (await told(client, job))[0]["bad_loss"] is None


async def test_spikes_of_a_script_without_end_leave_a_bounded_history(
    services: Services, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_room, "MAX_EVENTS_WITH_ESSENTIAL", 2)
    job = await running(services)
    losses = [9.0 if step % 100 == 0 else 1.0 for step in range(1, 501)]
    records = [MetricRecord(seq=n, step=n, time=services.now().timestamp(), values={"loss": loss}) for n, loss in enumerate(losses, 1)]
    keeper = ProgressKeeper(services)
    for first in range(0, 500, 50):
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=records[first : first + 50]))
        await keeper.flush()
    progress, events = await told(client, job)
    assert [event["data"]["step"] for event in events] == [100, 200]
    assert progress["bad_loss"]["what"].startswith("the loss of step 500 is a spike")


async def test_what_a_trainer_of_ours_tells_of_itself_is_not_told_again(services: Services, client: httpx.AsyncClient) -> None:
    job = await running(services, factories.job_spec().model_dump(mode="json"))
    await tell(ProgressKeeper(services), job, [(10, 1.0), (11, "NaN")])
    progress, events = await told(client, job)
    assert (progress["not_finite_step"], events) == (11, [])


async def test_a_state_whose_bad_steps_are_left_out_stays_finite(services: Services, client: httpx.AsyncClient) -> None:
    spec = factories.job_spec(fault_tolerance={"on_nan": "skip_update"}).model_dump(mode="json")
    job = await running(services, spec)
    await tell(ProgressKeeper(services), job, [(10, 1.0), (11, "NaN"), (12, 1.0)])
    assert (await told(client, job))[0]["not_finite_step"] is None


async def test_a_generation_that_goes_on_with_a_spoilt_state_remembers_since_when(services: Services, client: httpx.AsyncClient) -> None:
    """Or retention would take a checkpoint from after the first bad step for a sound one."""
    job = await running(services, generation=2, progress={"step": 20, "not_finite": {"step": 11, "generation": 1}})
    async with services.write() as session:
        (await session.get_one(GenerationRow, (job.id, 2))).start_step = 20
    await tell(ProgressKeeper(services), job, [(21, "NaN")], generation=2)
    assert (await told(client, job))[0]["not_finite_step"] == 11


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_step_that_was_done_again_with_a_finite_loss_dates_no_later_nan(
    services: Services, client: httpx.AsyncClient, restarted: bool
) -> None:
    """The last finite checkpoint was deleted: the one before the old step was kept in its place."""
    job = await running(services, generation=2, progress={"step": 50, "not_finite": {"step": 50, "generation": 1}})
    async with services.write() as session:
        (await session.get_one(GenerationRow, (job.id, 2))).start_step = 40
        session.add(GenerationRow(job_id=job.id, generation=3, world_size=1, started_at=services.now(), start_step=100, store_token="t"))
    keeper = ProgressKeeper(services)
    await tell(keeper, job, [(41, 1.0)], generation=2)
    await tell(ProgressKeeper(services) if restarted else keeper, job, [(50, 1.0), (100, 1.0)], generation=2)
    async with services.write() as session:
        (await session.get_one(JobRow, job.id)).generation = 3
    async with services.control.read() as session:
        assert await not_finite_since(session, await session.get_one(JobRow, job.id)) is None
    await tell(ProgressKeeper(services), job, [(101, 1.0), (300, "NaN")], generation=3)
    async with services.control.read() as session:
        assert await not_finite_since(session, await session.get_one(JobRow, job.id)) == 300
    assert (await told(client, job))[0]["not_finite_step"] == 300


async def test_a_new_generation_begins_with_a_clean_slate(services: Services, client: httpx.AsyncClient) -> None:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        gone = {"step": 20, "not_finite": {"step": 11, "generation": 1}}
        job = await factories.create_running_job(session, node, progress=gone)
        (await session.get_one(JobRow, job.id)).generation = 2
    assert (await client.get(f"/api/v1/training/jobs/{job.id}")).json()["progress"]["not_finite_step"] is None


async def test_a_script_that_is_to_stop_at_nan_fails_as_soon_as_it_is_heard_of(services: Services, client: httpx.AsyncClient) -> None:
    """Its ranks end by the signal; the failure stays the loss."""
    job = await running(services, SCRIPT | {"fault_tolerance": {"on_nan": "stop", "on_spike": "warn"}})
    now = services.now()
    await scheduler.step_once(services, now)
    assert (await client.get(f"/api/v1/training/jobs/{job.id}")).json()["state"] == "running"
    await tell(ProgressKeeper(services), job, [(10, 1.0), (11, "NaN")])
    await scheduler.step_once(services, now)
    assert (await client.get(f"/api/v1/training/jobs/{job.id}")).json()["state"] == "stopping"
    async with services.write() as session:
        for rank in (await job_rows.ranks(session, [(job.id, 1)]))[job.id, 1]:
            report = FailureReport(kind="signal", rank=rank.rank, message="SIGTERM", signal="SIGTERM", ordered=True, time=now.timestamp())
            rank.state, rank.outcome, rank.drained, rank.failure = RankState.EXITED, "failed", True, msgspec.to_builtins(report)
    await scheduler.step_once(services, now)
    found = (await client.get(f"/api/v1/training/jobs/{job.id}")).json()
    assert (found["state"], found["end_reason"], found["failure"]["kind"]) == ("failed", "loss_not_finite", "loss_not_finite")
    assert found["failure"]["message"] == "the loss of step 11 is NaN; it is stopped, as its fault_tolerance asks"
    assert found["progress"]["bad_loss"]["done"] == "the job is stopped"


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize(
    ("policy", "losses", "reason"),
    [
        ({"on_spike": "stop"}, [(41, 50.0), (42, "NaN")], "loss_spike"),
        ({"on_nan": "stop"}, [(41, "NaN"), (42, 50.0)], "loss_not_finite"),
        ({"on_nan": "stop", "on_spike": "stop"}, [(41, 50.0), (42, "NaN")], "loss_spike"),
    ],
)
async def test_a_script_that_is_to_stop_at_one_bad_loss_stops_when_another_follows_at_once(
    services: Services, client: httpx.AsyncClient, policy: dict[str, str], losses: list[tuple[int, Any]], reason: str, together: bool
) -> None:
    """It was never stopped, while its history said that it was: the loss that is only told took the place of the one that stops."""
    job = await running(services, SCRIPT | {"fault_tolerance": policy})
    keeper = ProgressKeeper(services)
    good = [MetricRecord(seq=step, step=step, time=services.now().timestamp(), values={"loss": 1.0}) for step in range(1, 41)]
    keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=good))
    if together:
        bad = [MetricRecord(seq=step, step=step, time=services.now().timestamp(), values={"loss": loss}) for step, loss in losses]
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=bad))
        await keeper.flush()
    else:
        await tell(keeper, job, losses)
    async with services.control.read() as session:
        stop = stop_of(await session.get_one(JobRow, job.id))
    assert stop is not None
    assert (stop.reason.value, stop.step) == (reason, 41)
    assert [event["data"]["step"] for event in (await told(client, job))[1]] in ([41, 42], [42, 41])
    await scheduler.step_once(services, services.now())
    assert (await client.get(f"/api/v1/training/jobs/{job.id}")).json()["state"] == "stopping"


async def test_the_best_losses_are_kept_over_generations_and_restarts(services: Services, client: httpx.AsyncClient) -> None:
    job = await running(services)
    told_values: list[MetricValues] = [{"loss": 2.0, "eval_loss": 2.5}, {"loss": 1.5}, {"loss": "NaN"}, {"loss": 1.8, "eval_loss": 2.7}]
    for values in told_values:
        keeper = ProgressKeeper(services)  # that of a coordinator started again
        progress, _ = await told(client, job)
        record = MetricRecord(seq=1, step=progress["step"] + 1, time=services.now().timestamp(), values=values)
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=[record]))
        await keeper.flush()
    progress, _ = await told(client, job)
    names = ("loss", "best_loss", "eval_loss", "best_eval_loss")
    assert [progress[name] for name in names] == [1.8, 1.5, 2.7, 2.5]


async def test_the_progress_has_what_a_second_record_of_the_newest_step_tells(services: Services, client: httpx.AsyncClient) -> None:
    """An evaluation is a record of its own at the step before it: the progress of no job had its loss."""
    job = await running(services)
    keeper = ProgressKeeper(services)
    records: list[tuple[int, dict[str, Any]]] = [
        (1, {"loss": 2.0, "samples_per_second": 100.0}),
        (1, {"eval_loss": 2.5}),
        (2, {"samples_per_second": 50.0}),
        (2, {"loss": 1.5, "samples_per_second": 400.0, "mfu": 0.25}),
        (0, {"loss": 9.0, "eval_loss": 9.0, "mfu": 0.75}),  # late
    ]
    for seq, (step, values) in enumerate(records, 1):
        record = MetricRecord(seq=seq, step=step, time=services.now().timestamp(), values=values)
        keeper.note(RankBatch(job_id=job.id, generation=1, rank=0, metrics=[record]))
    await keeper.flush()
    progress, _ = await told(client, job)
    assert [progress[name] for name in ("step", "loss", "eval_loss", "mfu")] == [2, 1.5, 2.5, 0.25]
    assert progress["samples_per_second"] == pytest.approx(2 / (1 / 100 + 1 / 50))  # one rate a step


@pytest.mark.parametrize("settings", ["postgresql"], indirect=True)
async def test_jobs_are_locked_in_the_order_of_their_ids(services: Services) -> None:
    """As by everything that locks several: two that wait for each other would end with an error in one of them."""
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        first, second = sorted([(await factories.create_running_job(session, node)).id for _ in range(2)])
    async with services.write() as session:  # PostgreSQL then finds the first one behind the second
        await session.execute(update(JobRow).where(JobRow.id == first).values(notes="changed"))
        await session.execute(update(GenerationRow).where(GenerationRow.job_id == first).values(start_step=1))

    async def load() -> None:
        async with services.write() as session:
            await progress_rows.load(session, [second, first])

    async with services.write() as session:
        await job_rows.get_locked(session, first)
        loading = asyncio.create_task(load())
        await waits_for_a_lock(services)
        await asyncio.wait_for(job_rows.get_locked(session, second), timeout=30.0)
    await loading
