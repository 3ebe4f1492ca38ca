"""Log pages: onwards, backwards, tail, search, and knowing when it is the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.services.ingest.writer import MetricsWriter
from paceline.cluster.states import JobState, NodeState, RankState
from paceline.db.models.jobs import JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.points import LogLine, RankBatch
from tests import factories


@dataclass(frozen=True)
class Logs:
    client: httpx.AsyncClient
    writer: MetricsWriter
    job_id: str

    async def store(self, lines: list[LogLine], *, rank: int = 0) -> None:
        await self.writer.store([RankBatch(job_id=self.job_id, generation=1, rank=rank, logs=lines)])

    async def get(self, **params: Any) -> dict[str, Any]:
        answer = await self.client.get(f"/api/v1/training/jobs/{self.job_id}/logs", params=params)
        assert answer.status_code == 200, answer.text
        document: dict[str, Any] = answer.json()
        return document

    async def texts(self, **params: Any) -> list[str]:
        return [item["text"] for item in (await self.get(**params))["items"]]


@pytest.fixture
async def logs(app: Any, services: Services, client: httpx.AsyncClient) -> Logs:
    async with services.write() as session:
        node, _ = await factories.create_node(session)
        job = await factories.create_running_job(session, node)
    return Logs(client, app.state.writer, job.id)


async def end(services: Services, job_id: str, *, drained: bool) -> None:
    async with services.write() as session:
        job = await session.get_one(JobRow, job_id)
        job.state, job.ended_at = JobState.COMPLETED, factories.START
        rank = await session.get_one(RankRow, (job_id, 1, 0))
        rank.state, rank.drained = RankState.EXITED, drained


async def test_reading_on_by_cursor_sees_every_line_once(logs: Logs) -> None:
    await logs.store(factories.log_lines(25))
    seen, after = [], 0
    while page := await logs.get(after=after, limit=10):
        seen += [item["text"] for item in page["items"]]
        if page["next_after"] == after:
            break
        after = page["next_after"]
    assert seen == [f"line {n}" for n in range(1, 26)]
    await logs.store(factories.log_lines(1, seq=26))
    assert await logs.texts(after=after) == ["line 26"]


async def test_tail_and_before_page_backwards(logs: Logs) -> None:
    await logs.store(factories.log_lines(30))
    tail = await logs.get(tail=True, limit=10)
    assert [item["text"] for item in tail["items"]] == [f"line {n}" for n in range(21, 31)]
    earlier = await logs.texts(before=tail["items"][0]["seq"], limit=10)
    assert earlier == [f"line {n}" for n in range(11, 21)]
    await logs.store(factories.log_lines(1, seq=31))
    assert await logs.texts(after=tail["next_after"]) == ["line 31"]


async def test_search_takes_wildcards_literally_and_ignores_case(logs: Logs) -> None:
    await logs.store(
        [
            *factories.log_lines(1, text="Loss 5% off"),
            *factories.log_lines(1, seq=2, text="loss 50 off"),
            *factories.log_lines(1, seq=3, text="a_b"),
        ]
    )
    assert await logs.texts(q="loss 5%") == ["Loss 5% off"]
    assert await logs.texts(q="LOSS") == ["Loss 5% off", "loss 50 off"]
    assert await logs.texts(q="_") == ["a_b"]


async def test_rank_and_level_filters(logs: Logs) -> None:
    await logs.store(factories.log_lines(2, text="zero {n}"))
    await logs.store(factories.log_lines(2, text="one {n}", level="error"), rank=1)
    assert await logs.texts(rank="1") == ["one 1", "one 2"]
    assert await logs.texts(level="error,warning") == ["one 1", "one 2"]
    assert await logs.texts(rank="0", level="error") == []


async def test_a_filtered_page_moves_the_cursor_past_what_it_skipped(logs: Logs) -> None:
    await logs.store(factories.log_lines(40))
    page = await logs.get(q="nowhere")
    assert page["items"] == []
    assert page["next_after"] == (await logs.get(tail=True, limit=1))["items"][0]["seq"]


@pytest.mark.parametrize(("drained", "complete"), [(True, True), (False, False)])
async def test_the_end_is_the_end_only_when_every_line_arrived(logs: Logs, services: Services, drained: bool, complete: bool) -> None:
    await logs.store(factories.log_lines(3))
    assert (await logs.get())["complete"] is False
    await end(services, logs.job_id, drained=drained)
    assert (await logs.get())["complete"] is complete
    assert (await logs.get(limit=2))["complete"] is False  # there is another page


async def test_a_lost_node_never_sends_its_last_lines(logs: Logs, services: Services) -> None:
    await end(services, logs.job_id, drained=False)
    async with services.write() as session:
        rank = await session.get_one(RankRow, (logs.job_id, 1, 0))
        (await session.get_one(NodeRow, rank.node_id)).state = NodeState.LOST
    assert (await logs.get())["complete"] is True


async def test_download_is_the_whole_log_as_text(logs: Logs) -> None:
    for start in range(1, 6_001, 3_000):
        await logs.store(factories.log_lines(3_000, seq=start))
    answer = await logs.client.get(f"/api/v1/training/jobs/{logs.job_id}/logs/download")
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert (len(lines), lines[-1].endswith("g1 rank 0 info    line 6000")) == (6_000, True)


@pytest.mark.parametrize("query", ["rank=a", "level=loud", "limit=2001", "after=-1"])
async def test_bad_parameters_are_problems(logs: Logs, query: str) -> None:
    answer = await logs.client.get(f"/api/v1/training/jobs/{logs.job_id}/logs?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")


async def test_an_unknown_job_is_not_found(client: httpx.AsyncClient) -> None:
    for path in ("logs", "logs/download", "events"):
        assert (await client.get(f"/api/v1/training/jobs/nothing/{path}")).status_code == 404
