"""What an operator is told: loop lag, queues, pools, disk, what was dropped or failed. In a form that Prometheus takes."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from datetime import datetime

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from paceline.api.core import vitals
from paceline.api.core.context import Services
from paceline.api.loops.lease_loop import LeaseLoop
from paceline.cluster.protocol import UPLOAD_PATH
from paceline.monitoring.points import MetricRecord, RankBatch, Upload
from tests import factories
from tests.conftest import Connect

PROMTOOL_SECONDS = 30


async def told(client: httpx.AsyncClient) -> dict[str, float]:
    """Samples by name and labels, as `name{a="b"}`."""
    text = (await client.get("/metrics")).text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {each.name + "".join(f"[{value}]" for value in each.labels.values()): each.value for each in samples}


async def test_pools_disk_and_queues_are_told(client: httpx.AsyncClient, services: Services) -> None:
    found = await told(client)
    assert found["paceline_upload_queue_records"] == 0
    assert 0 <= found["paceline_database_connections_in_use[metrics]"] < found["paceline_database_connections_limit[metrics]"]
    assert found["paceline_database_connections_in_use[control]"] >= 1  # this request's own
    assert found["paceline_records_dropped_total[unknown_rank]"] == found["paceline_records_dropped_total[refused]"] == 0
    if services.control.is_sqlite:
        assert found["paceline_disk_free_bytes"] > 0
        assert found["paceline_database_file_bytes[paceline.db]"] > 0


async def test_an_event_loop_that_is_held_up_is_seen(client: httpx.AsyncClient, app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, observe = asyncio.Event(), app.state.vitals.loop_lag.observe

    def look(lag: float) -> None:
        observe(lag)
        if lag > vitals.LAG_INTERVAL_SECONDS / 2:
            seen.set()

    monkeypatch.setattr(app.state.vitals.loop_lag, "observe", look)
    threading.Event().wait(2 * vitals.LAG_INTERVAL_SECONDS)  # as whatever runs in the loop and does not let go
    await asyncio.wait_for(seen.wait(), 10)
    assert (await told(client))["paceline_event_loop_lag_seconds_sum"] > 0.1


async def test_dropped_and_failed_uploads_are_counted(client: httpx.AsyncClient, connect: Connect, services: Services) -> None:
    async with services.write() as session:
        node, credential = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    good = MetricRecord(seq=1, step=1, time=0.0, values={"loss": 1.0})
    async with connect(credential) as agent:
        for job_id, records, status in ((job.id, [good], 200), ("stranger", [good], 200), (job.id, [good] * 5001, 413)):
            batch = RankBatch(job_id=job_id, generation=1, rank=0, metrics=records)
            answer = await agent.post(UPLOAD_PATH, content=msgspec.json.encode(Upload(batches=[batch])))
            assert answer.status_code == status, answer.text
    found = await told(client)
    assert found["paceline_records_dropped_total[unknown_rank]"] == 1
    assert found["paceline_uploads_failed_total[too_many_records]"] == 1
    assert found["paceline_upload_store_seconds_count"] == 1


async def test_a_loop_that_fails_is_told_by_name_with_the_age_of_its_last_good_step(
    client: httpx.AsyncClient, app: FastAPI, services: Services
) -> None:
    async def step(now: datetime) -> None:
        raise RuntimeError("planned")

    failing = LeaseLoop("failing", services, step, 3600.0)
    app.state.loops = [failing, LeaseLoop("idle", services, step, 3600.0)]
    await failing._take_turn()
    found = await told(client)
    assert found["paceline_loop_steps_failed_total[failing]"] == 1
    assert 0 < found["paceline_loop_last_success_age_seconds[failing]"] < 60
    assert (found["paceline_loop_leader[failing]"], found["paceline_loop_leader[idle]"]) == (1, 0)


async def test_promtool_finds_nothing_to_complain_about(client: httpx.AsyncClient, app: FastAPI, services: Services, promtool: str) -> None:
    app.state.loops = [LeaseLoop("idle", services, lambda now: asyncio.sleep(0), 3600.0)]
    text = (await client.get("/metrics")).content
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, timeout=PROMTOOL_SECONDS, check=False)  # noqa: ASYNC221
    assert checked.returncode == 0, (checked.stdout + checked.stderr).decode()
