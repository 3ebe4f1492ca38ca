"""Watchers of one stream share its reader: rows are read once, and nobody gets less for it."""

from __future__ import annotations

import pytest
from sqlalchemy import event

from paceline.api.core.context import Services
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.websocket import tails as tails_of_streams
from paceline.api.websocket.sources import EncodedFrame, Frame, MetricsSource, Topic, encoded
from paceline.api.websocket.tails import KEPT_FRAMES, SharedTails, TableTail
from paceline.monitoring.points import RankBatch
from tests import factories
from tests.waiting import until

WATCHERS = 20


async def store(services: Services, job_id: str, first: int, count: int) -> None:
    writer = MetricsWriter(services.metrics, services.bus, services.now)
    async with writer.running():
        await writer.store([RankBatch(job_id=job_id, generation=1, rank=0, metrics=factories.records(first, count))])


async def job(services: Services) -> str:
    async with services.write() as session:
        return (await factories.create_job(session)).id


async def test_a_record_is_read_and_encoded_once_for_all_clients(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    for look in ("LOOK_SECONDS", "OTHER_REPLICAS_SECONDS"):
        monkeypatch.setattr(tails_of_streams, look, 3600.0)  # a busy machine may take longer than that to store the records
    job_id, tails, reads = await job(services), SharedTails(services), list[str]()
    event.listen(
        services.metrics.engine.sync_engine,
        "before_cursor_execute",
        lambda *arguments: reads.append(arguments[2]) if "FROM metric_records" in arguments[2] else None,
    )
    written = list[Frame]()

    def counted(topic: Topic, frame: Frame) -> EncodedFrame:
        written.append(frame)
        return encoded(topic, frame)

    monkeypatch.setattr(tails_of_streams, "encoded", counted)
    source = MetricsSource(job_id)
    contexts = [tails.follow(source, 0) for _ in range(WATCHERS)]
    followed = [await context.__aenter__() for context in contexts]
    await store(services, job_id, 1, 3)
    await until(lambda: all(len(tail.after(0) or ()) == 3 for tail, _ in followed), "all see the records")
    assert len({id(tail) for tail, _ in followed}) == 1
    assert len(reads) <= 4, "once at the start, once for each nudge"
    assert [frame.type for frame in written] == ["record"] * 3
    assert all([await nudges.wait(1.0) for _, nudges in followed])
    for context in contexts:
        await context.__aexit__(None, None, None)
    assert not tails._tails, "nobody watches, nothing is kept"


async def test_a_tail_keeps_the_newest_frames_and_says_where_they_begin(services: Services) -> None:
    job_id = await job(services)
    tail = TableTail(services, MetricsSource(job_id), 0)
    for first in range(1, 2 * KEPT_FRAMES + 200, 100):
        await store(services, job_id, first, 100)
        await tail.read_once()
    assert tail.after(0) is None, "those must be read from the table"
    kept = tail.after(tail.start)
    assert kept is not None
    assert KEPT_FRAMES <= len(kept) <= 2 * KEPT_FRAMES
    assert [frame.seq for frame in kept] == sorted(frame.seq for frame in kept)
    assert kept[0].seq > tail.start
    assert tail.after(kept[-1].seq) == []
