"""A job whose data cannot be deleted holds up no other: that is told once and counted, and the next job's data goes in the same pass."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from paceline.api.core.context import Services
from paceline.api.services.artifacts import stored_artifacts
from paceline.api.services.storage import removals
from paceline.cluster.states import JobState, RankState
from paceline.db.models.artifacts import ArtifactRow
from paceline.db.models.events import EventRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.metrics import MetricRecordRow, MetricRollupRow
from paceline.db.models.storage import DataRemovalRow
from paceline.db.repositories import aged, deletes
from tests import factories
from tests.api.stored import Store
from tests.factories import START

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
#: When data is due to go: some asked for, or too much; and what is too old.
AT_ONCE, LATER = SECOND, 100 * DAY
Setup = Callable[[Store, JobRow], Awaitable[None]]


@pytest.fixture
async def store(app: Any, services: Services) -> Store:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
    return Store(services, app.state.writer, node)


def fail_for(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, *bad: str) -> None:
    """The function raises for these jobs: after its work where that is in a transaction of its caller's, which is to be rolled back."""
    was, commits = getattr(module, name), module is stored_artifacts

    async def fail(first: Any, second: Any, *rest: Any, **options: Any) -> Any:
        is_bad = getattr(second, "job_id", second) in bad
        result = None if is_bad and commits else await was(first, second, *rest, **options)
        if is_bad:
            raise KeyError("planned")
        return result

    monkeypatch.setattr(module, name, fail)


async def told(store: Store) -> list[tuple[str | None, str]]:
    async with store.services.control.read() as session:
        query = select(EventRow.job_id, EventRow.message).where(EventRow.type == "job.held_up").order_by(EventRow.seq)
        return [(job_id, message) for job_id, message in await session.execute(query)]


async def left(store: Store, table: Any, job: JobRow) -> int:
    """Rows of a job; of ranks, those of an earlier generation."""
    return await store.count(table, table.job_id == job.id, *([RankRow.generation == 1] if table is RankRow else []))


async def points(store: Store, job: JobRow) -> None:
    await store.store(job, lines=0)


async def points_to_remove(store: Store, job: JobRow) -> None:
    await points(store, job)
    async with store.services.write() as session:
        session.add(DataRemovalRow(job_id=job.id, asked_by="ada", asked_at=START))


async def former_ranks(store: Store, job: JobRow) -> None:
    async with store.services.write() as session:
        session.add(GenerationRow(job_id=job.id, generation=1, world_size=1, started_at=START, store_token="t"))
        await session.flush()
        place = {"job_id": job.id, "generation": 1, "rank": 0, "node_id": store.node.id, "slot": 0, "local_rank": 0, "node_rank": 0}
        session.add(RankRow(**place, updated_at=START, state=RankState.EXITED, drained=True))


def artifact(kind: str, **more: Any) -> Setup:
    async def make(store: Store, job: JobRow) -> None:
        columns: dict[str, Any] = {"generation": 1, "rank": 0, "node_id": store.node.id, "name": "t", "first_step": 1, "last_step": 2}
        columns |= {"bytes": 1, "sha256": "0" * 64, "created_at": START, "stored_at": START} | more
        async with store.services.write() as session:
            session.add(ArtifactRow(job_id=job.id, kind=kind, **columns))

    return make


@pytest.mark.parametrize(
    ("task", "setup", "function", "table", "at", "keep"),
    [
        ("delete what is too old of its points", points, (deletes, "drop_oldest"), MetricRecordRow, LATER, {}),
        ("delete what is too old of its points", points, (deletes, "drop_buckets"), MetricRollupRow, LATER, {"keep_curves_days": 1}),
        ("delete data of it to make room", points, (deletes, "drop_oldest"), MetricRecordRow, AT_ONCE, {"keep_size": 1}),
        ("delete its data, as was asked for", points_to_remove, (deletes, "drop_oldest"), MetricRecordRow, AT_ONCE, {}),
        ("delete ranks of its earlier generations", former_ranks, (aged, "drop_ranks"), RankRow, LATER, {}),
        ("delete its old files", artifact("trace"), (stored_artifacts, "remove"), ArtifactRow, LATER, {}),
        ("delete its old files", artifact("file", path="a", folder=""), (stored_artifacts, "remove"), ArtifactRow, LATER, {}),
    ],
    ids=["age", "curves", "size", "asked", "ranks", "traces", "files"],
)
async def test_a_job_that_raises_keeps_no_other_from_its_turn_in_the_same_pass(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    task: str,
    setup: Setup,
    function: tuple[Any, str],
    table: Any,
    at: timedelta,
    keep: dict[str, Any],
) -> None:
    caplog.set_level("CRITICAL")
    bad, good = [await store.job(JobState.COMPLETED, generation=2 if table is RankRow else 1) for _ in range(2)]
    for job in (bad, good):
        await setup(store, job)
    rows = await left(store, table, bad)
    with monkeypatch.context() as broken:
        fail_for(broken, *function, bad.id)
        await store.passes(START, **keep)
        await store.passes(START + at, **keep)
        assert (await left(store, table, good), await left(store, table, bad)) == (0, rows)
        await store.passes(START + at + SECOND, **keep)
    ((job_id, message),) = await told(store)
    assert (job_id, message.startswith(f"held up: cannot {task}")) == (bad.id, True), message
    assert store.services.troubles.held_up("job") == 1
    await store.passes(START + at + DAY, **keep)
    await store.passes(START + at + 2 * DAY, **keep)
    assert await left(store, table, bad) == 0
    assert store.services.troubles.held_up("job") == 0


async def test_more_requests_that_cannot_be_carried_out_than_a_pass_takes_up_hold_up_no_other(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The oldest twenty were taken up again in each pass, and no other ever was."""
    caplog.set_level("CRITICAL")
    monkeypatch.setattr(removals, "AT_ONCE", 2)
    jobs = [await store.job(JobState.COMPLETED) for _ in range(4)]
    for number, job in enumerate(jobs):
        async with store.services.write() as session:
            session.add(DataRemovalRow(job_id=job.id, asked_by="ada", asked_at=START + number * SECOND))
    fail_for(monkeypatch, aged, "artifacts_of", *(job.id for job in jobs[:3]))
    for number in range(3):
        await store.passes(START + number * DAY)
    async with store.services.control.read() as session:
        open = {row.job_id for row in await aged.open_removals(session, 10)}
    assert open == {job.id for job in jobs[:3]}
    assert sorted(job_id or "" for job_id, _ in await told(store)) == sorted(open)
