"""Facts of trials from stored rows, on both databases: few steps of many, roll-ups of what is gone, and what has no points at all."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlalchemy import delete, event, select, update

from paceline.api.core.context import Services
from paceline.api.services.experiments import trial_facts
from paceline.api.services.experiments.metric_totals import MetricTotals
from paceline.api.services.experiments.strides import by_stride
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.history.storage import StorageKind
from paceline.cluster.states import JobState
from paceline.db.models.experiments import TrialRow
from paceline.db.models.jobs import JobRow
from paceline.db.models.metrics import MetricRecordRow, RollupMarkRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories.metric_columns import StoredBucket
from paceline.monitoring.rollup import Bucket
from scripts.bench.stored_experiment import START, StoredExperiment, write_experiment

STEPS = 60


@pytest.fixture
async def experiment_id(services: Services) -> str:
    return await write_experiment(services.settings.data, services.settings.database_url, StoredExperiment(12, STEPS))


async def facts_of(services: Services, experiment_id: str) -> list[TrialFacts]:
    async with services.control.read() as session, services.metrics.read() as points:
        return await trial_facts.trial_facts(
            session, points, experiment_id, "loss", START + timedelta(hours=2), services.settings.keep.readings
        )


async def test_facts_of_stored_trials(services: Services, experiment_id: str) -> None:
    facts = await facts_of(services, experiment_id)
    assert [each.index for each in facts] == list(range(12))
    one = facts[3]
    assert (one.state, one.job_state, one.strategy, one.world_size, one.repeat, one.machines) == (
        "completed",
        JobState.COMPLETED,
        "ddp",
        2,
        3,
        1,
    )
    assert list(one.series.steps) == list(range(1, STEPS + 1))
    assert list(one.series.samples) == [32 * step for step in one.series.steps]
    assert one.step_seconds == pytest.approx(0.106, rel=0.05)
    assert one.step_seconds is not None
    assert one.samples_per_second == pytest.approx(32 / one.step_seconds)
    assert sum(one.parts.values()) == pytest.approx(one.step_seconds)
    assert one.exposed_communication == pytest.approx(0.12)
    assert (one.bytes_per_step, one.peak_memory_bytes) == (1.8e6, 2.43e8)
    held = 0.11 * STEPS + 2
    assert one.slot_hours == pytest.approx(2 * held / 3600)
    assert one.goodput == pytest.approx(sum(one.series.seconds) / held)
    assert one.metric == one.series.losses[-1]
    assert one.ended_at == pytest.approx((one.started_at or 0) + held)
    assert facts[5].strategy == "fsdp"


async def test_of_many_trials_few_steps_are_read_and_say_the_same(
    services: Services, experiment_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await facts_of(services, experiment_id)
    monkeypatch.setattr(trial_facts, "MOST_RECORDS", 12 * 20)
    some = await facts_of(services, experiment_id)
    for one, other in zip(whole, some, strict=True):
        assert list(other.series.steps) == list(range(3, STEPS + 1, 3))
        assert other.step_seconds == pytest.approx(one.step_seconds, rel=0.05)
        assert (other.goodput, other.metric) == (one.goodput, one.metric)


async def test_the_number_of_queries_does_not_grow_with_the_trials(services: Services, experiment_id: str) -> None:
    other = await write_experiment(services.settings.data, services.settings.database_url, StoredExperiment(40, 20, "other"))
    asked: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        asked.append(statement)

    for database in (services.control, services.metrics):
        event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    counted = []
    for each in (experiment_id, other):
        asked.clear()
        await facts_of(services, each)
        counted.append(len(asked))
    assert max(counted) < 20, "a query for each trial would be many more"


async def test_points_that_are_in_no_roll_up_yet_count(services: Services, experiment_id: str) -> None:
    before = await facts_of(services, experiment_id)
    async with services.metrics.write() as session:
        await session.execute(update(RollupMarkRow).values(seq=0))
        job_id = before[0].job_id
        late = (await session.scalars(select(MetricRecordRow).where(MetricRecordRow.job_id == job_id, MetricRecordRow.step == STEPS))).one()
        late.values = late.values.replace('"peak_memory_bytes":240000000.0', '"peak_memory_bytes":990000000.0')
    assert (await facts_of(services, experiment_id))[0].peak_memory_bytes == 9.9e8


async def test_steps_whose_points_are_gone_are_known_from_roll_ups(services: Services, experiment_id: str) -> None:
    before = (await facts_of(services, experiment_id))[0]
    async with services.metrics.write() as session:
        await session.execute(delete(MetricRecordRow).where(MetricRecordRow.job_id == before.job_id))
        await session.merge(StoredDataRow(job_id=before.job_id, kind=StorageKind.POINTS, changed_at=START, gone_to_step=STEPS))
    after = (await facts_of(services, experiment_id))[0]
    assert list(after.series.steps) == [9, 19, 29, 39, 49, 59, 60]
    assert after.step_seconds == pytest.approx(before.step_seconds, rel=0.1)
    assert after.series.samples[-1] == before.series.samples[-1]
    assert (after.metric, after.peak_memory_bytes) == (before.metric, before.peak_memory_bytes)


async def test_trials_that_have_not_run_have_a_state_and_no_figures(services: Services, experiment_id: str) -> None:
    async with services.write() as session:
        waiting = update(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.index == 0)
        await session.execute(waiting.values(job_id=None))
        refused = update(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.index == 1)
        await session.execute(refused.values(job_id=None, refusal="64 does not divide by 3"))
    waits, refusal, ran = (await facts_of(services, experiment_id))[:3]
    assert (waits.state, waits.step_seconds, waits.slot_hours, list(waits.series.steps)) == ("waiting", None, None, [])
    assert (refusal.state, refusal.refusal) == ("refused", "64 does not divide by 3")
    assert ran.step_seconds


async def test_an_open_choice_is_told_by_its_job(services: Services, experiment_id: str) -> None:
    async with services.write() as session:
        trial = (await session.scalars(select(TrialRow).where(TrialRow.experiment_id == experiment_id, TrialRow.index == 0))).one()
        job = await session.get(JobRow, trial.job_id)
        assert job is not None
        await session.execute(
            update(TrialRow)
            .where(TrialRow.experiment_id == experiment_id, TrialRow.index == 0)
            .values(document=job.spec.document | {"parallelism": {"strategy": "auto"}})
        )
    assert (await facts_of(services, experiment_id))[0].strategy == "ddp"


def test_long_jobs_are_read_in_strides_and_sparse_ones_whole() -> None:
    def told(count: int, last: int) -> MetricTotals:
        return MetricTotals([StoredBucket("step_seconds", 0, 1, 0, Bucket(count=count, last_step=last))])

    jobs = {"short": told(80, 80), "long": told(1000, 1000), "sparse": told(100, 1000), "long and sparse": told(10_000, 100_000)}
    assert by_stride(jobs, 100) == {1: ["short", "sparse"], 10: ["long"]}
    assert [trial_facts.records_of_one(trials) for trials in (0, 10, 1_000, 100_000)] == [5_000, 5_000, 60, 20]
