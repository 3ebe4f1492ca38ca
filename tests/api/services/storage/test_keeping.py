"""Sweeps delete in the order of eviction, and as fast as a database allows."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from paceline.api.core.context import Services
from paceline.api.services.storage import rollups
from paceline.api.services.storage.keeping import DeletionPace
from paceline.cluster.history import storage
from paceline.cluster.states import JobState
from paceline.db.models.metrics import MetricRecordRow, MetricRollupRow
from paceline.db.models.storage import StoredDataRow
from paceline.db.repositories import deletes
from paceline.monitoring.points import RankBatch
from paceline.monitoring.rollup import LEVELS
from tests import factories
from tests.api.stored import PATIENCE, Store
from tests.factories import START


@pytest.fixture
async def store(app: Any, services: Services) -> Store:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
    return Store(services, app.state.writer, node)


async def test_where_no_hours_are_spared_a_living_jobs_points_go_before_curves(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator notes once an hour how far its tables are: until the first time, curves of ended jobs went in their place."""
    monkeypatch.setattr(storage, "JOB_SHARE", 1.0)  # two jobs have more than their share
    ended, living = await store.job(JobState.COMPLETED), await store.job()
    await store.store(ended, 1, 400, lines=0)
    await store.store(living, 1, 400, lines=0)
    curves = await store.count(MetricRollupRow)
    async with store.services.metrics.read() as session:
        points = await session.scalar(select(func.sum(StoredDataRow.bytes)).where(StoredDataRow.kind == "points"))
        total = await session.scalar(select(func.sum(StoredDataRow.bytes)))
    assert points is not None
    assert total is not None
    await store.passes(START + timedelta(minutes=1), keep_size=int((int(total) - int(points) * 3 // 4) / 0.98), keep_recent_hours=0)
    assert await store.count(MetricRollupRow) == curves
    assert await store.count(MetricRecordRow, MetricRecordRow.job_id == ended.id) == 0
    assert 190 <= await store.count(MetricRecordRow, MetricRecordRow.job_id == living.id) <= 210


async def test_curves_of_a_thousand_names_go_in_few_transactions(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each name and level kept the loop busy for longer than the next such job needed to come."""
    job = await store.job(JobState.COMPLETED)
    values: dict[str, Any] = {f"metric_{number}": 1.0 for number in range(900)}
    metrics = factories.records(1, 1, **values)
    await store.writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=metrics, logs=[])])
    assert await rollups.refresh(store.services, DeletionPace.of(PATIENCE), START)
    calls = list[int]()
    drop_buckets = deletes.drop_buckets

    async def counted(*arguments: Any) -> deletes.DeletedAmount:
        calls.append(len(arguments[2]))
        return await drop_buckets(*arguments)

    monkeypatch.setattr(deletes, "drop_buckets", counted)
    await store.passes(START + timedelta(days=366))
    assert await store.count(MetricRollupRow) == 0
    assert sum(calls) >= 900 * len(LEVELS)
    assert len(calls) < sum(calls) / 50
