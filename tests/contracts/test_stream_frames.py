"""The frames of the live streams: browsers and programs of users read them, so no field may change its name or its type.

`hello`, `gap`, `reset` and `ping` are held in `tests/api/websocket/test_streams.py`. PACELINE_WRITE_CONTRACTS=1 writes the shapes down.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from paceline.api.core.context import Services
from paceline.api.core.identity import SYSTEM
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.api.services.lifecycle import events
from paceline.api.websocket.sources import EventsSource, LogsSource, MetricsSource, ReadingsSource, StreamSource, encoded
from paceline.monitoring.points import RankBatch
from tests import factories, readings
from tests.contracts.shapes import kept, shape

KEPT = Path(__file__).with_name("stream_frames.json")


async def first_frame(services: Services, source: StreamSource) -> Any:
    async with source.database(services).read() as session:
        frame = (await source.after(session, 0, 1))[0]
    return json.loads(encoded(source.topic, frame).text)


async def test_what_streams_send_is_what_it_was(app: FastAPI, services: Services) -> None:
    writer: MetricsWriter = app.state.writer
    async with services.write() as session:
        job, (node, _) = await factories.create_job(session), await factories.create_node(session)
        said: dict[str, Any] = {"actor": SYSTEM, "cause": "test", "message": "happened", "generation": 1, "data": {"step": 3}}
        await events.record(session, type="test", job_id=job.id, node_id=node.id, **said)
    records = factories.records(1, 1)
    await writer.store([RankBatch(job_id=job.id, generation=1, rank=0, metrics=records, logs=factories.log_lines(1))])
    await readings.store(services, node.id, 1.7e9, {"host": {"cpu_percent": [1.0, 2.0]}, "gpu:0": {"utilization": [3.0, 4.0]}})
    sources: tuple[StreamSource, ...] = (MetricsSource(job.id), LogsSource(job.id), EventsSource(job.id), ReadingsSource(node.id))
    now = [shape(await first_frame(services, source)) for source in sources]
    assert kept(KEPT, now) == now
