"""Log pages: onwards, backwards, tail, search, and knowing when it is the end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from paceline.api.core.context import Services
from paceline.api.services.history import log_pages
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
        job = await factories.create_running_job(session, node, world_size=2)
    return Logs(client, app.state.writer, job.id)


async def end(services: Services, job_id: str, *, drained: bool) -> None:
    async with services.write() as session:
        job = await session.get_one(JobRow, job_id)
        job.state, job.ended_at = JobState.COMPLETED, factories.START
        for number in range(job.world_size):
            rank = await session.get_one(RankRow, (job_id, 1, number))
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


async def test_a_regular_expression_matches_lines_in_any_case(logs: Logs) -> None:
    texts = ["Loss 0.5 at step 10", "loss nan at step 11", "error: Loss 7", "\r 40%|####"]
    await logs.store([line for seq, text in enumerate(texts, start=1) for line in factories.log_lines(1, seq=seq, text=text)])
    assert await logs.texts(q=r"^loss (\d|nan)", regex=True) == texts[:2]
    assert await logs.texts(q=r"\Aerror", regex=True) == texts[2:3]  # an anchor to the line, not to the log
    assert await logs.texts(q=r"step 1[^x]+error", regex=True) == []  # no match goes over the end of a line
    assert await logs.texts(q=r"^ ?\d+%", regex=True) == [" 40%|####"]


@pytest.mark.parametrize("expression", ["(", "(?=x)", r"(a)\1", "((a{100}){100}){100}"])
async def test_a_bad_expression_is_refused_in_words(logs: Logs, expression: str) -> None:
    path = f"/api/v1/training/jobs/{logs.job_id}/logs"
    answer = await logs.client.get(path, params={"q": expression, "regex": True})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")
    assert answer.json()["detail"].startswith(f"{expression!r} is not a valid regular expression: ")
    assert "(?m)" not in answer.json()["detail"]


async def test_an_expression_that_backtracks_forever_elsewhere_is_searched_in_linear_time(logs: Logs) -> None:
    await logs.store(factories.log_lines(20, text="a" * 5_000 + "!"))
    async with asyncio.timeout(5):
        assert await logs.texts(q="(a*)*b", regex=True) == []


@pytest.mark.parametrize("backwards", [False, True])
async def test_a_long_search_for_an_expression_goes_on_page_by_page(logs: Logs, backwards: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pages, "SCAN_CHUNK", 10)
    monkeypatch.setattr(log_pages, "MOST_SCANNED", 20)
    await logs.store(factories.log_lines(100))
    found: list[str] = []
    place: dict[str, Any] = {"tail": True} if backwards else {}
    for _ in range(100):
        page = await logs.get(q="line (7|42|99)$", regex=True, limit=2, **place)
        texts = [item["text"] for item in page["items"]]
        found = [*texts, *found] if backwards else [*found, *texts]
        if page["next_before"] is None if backwards else page["at_end"]:
            break
        place = {"before": page["next_before"]} if backwards else {"after": page["next_after"]}
    assert found == ["line 7", "line 42", "line 99"]


async def test_context_is_of_the_rank_that_printed_the_line(logs: Logs) -> None:
    for n in range(1, 6):
        await logs.store(factories.log_lines(1, seq=n, text=f"zero {n}"))
        await logs.store(factories.log_lines(1, seq=n, text=f"one {n}"), rank=1)
    page = await logs.get(q="zero 3", context=1)
    assert [(item["text"], item["context"]) for item in page["items"]] == [("zero 2", True), ("zero 3", False), ("zero 4", True)]
    page = await logs.get(q="zero", context=2, rank="0")
    assert [item["text"] for item in page["items"]] == [f"zero {n}" for n in range(1, 6)]
    assert not any(item["context"] for item in page["items"])


async def test_lines_between_two_times(logs: Logs) -> None:
    await logs.store([LogLine(seq=n, time=1_000.0 + n, level="info", text=f"at {n}") for n in range(1, 6)])
    since, until = (datetime.fromtimestamp(1_000 + n, UTC).isoformat() for n in (2, 4))
    assert await logs.texts(since=since, until=until) == ["at 2", "at 3", "at 4"]
    assert await logs.texts(since=until, limit=1) == ["at 4"]


async def test_a_page_from_a_line_on(logs: Logs) -> None:
    await logs.store(factories.log_lines(30))
    page = await logs.get(line=12, limit=3)
    assert [item["text"] for item in page["items"]] == ["line 12", "line 13", "line 14"]
    assert await logs.texts(before=page["next_before"], limit=2) == ["line 10", "line 11"]
    assert await logs.texts(line=31) == []


async def test_a_state_of_a_progress_bar_is_told_from_a_line(logs: Logs) -> None:
    bar = [factories.log_lines(1, seq=n, text=text)[0] for n, text in enumerate(["begin", " 10%", "\r 50%", "\r100%", "end"], start=1)]
    await logs.store(bar)
    page = await logs.get()
    assert [(item["text"], item["overwrites"]) for item in page["items"]] == [
        ("begin", False),
        (" 10%", False),
        (" 50%", True),
        ("100%", True),
        ("end", False),
    ]
    download = (await logs.client.get(f"/api/v1/training/jobs/{logs.job_id}/logs/download")).text
    assert [line.split("info")[1].strip() for line in download.splitlines()] == ["begin", "100%", "end"]


async def test_an_ended_job_says_that_lines_are_still_arriving(logs: Logs, services: Services) -> None:
    await logs.store(factories.log_lines(3))
    assert (await logs.get())["arriving"] is False
    await end(services, logs.job_id, drained=False)
    assert (await logs.get(limit=1))["arriving"] is True
    assert (await logs.get(tail=True))["complete"] is False


async def test_a_rank_that_the_job_never_had_is_refused(logs: Logs) -> None:
    answer = await logs.client.get(f"/api/v1/training/jobs/{logs.job_id}/logs?rank=0,99")
    assert (answer.status_code, answer.json()["detail"]) == (400, "rank=99: the job has ranks 0 to 1")


@pytest.mark.parametrize("query", ["rank=a", "level=loud", "limit=2001", "after=-1", "line=0", "context=51", "since=2026-01-01T00:00:00"])
async def test_bad_parameters_are_problems(logs: Logs, query: str) -> None:
    answer = await logs.client.get(f"/api/v1/training/jobs/{logs.job_id}/logs?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_parameter")


async def test_an_unknown_job_is_not_found(client: httpx.AsyncClient) -> None:
    for path in ("logs", "logs/download", "events"):
        assert (await client.get(f"/api/v1/training/jobs/nothing/{path}")).status_code == 404
