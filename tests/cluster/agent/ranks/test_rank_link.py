"""What a rank may say to its agent, and what ends only its own connection."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from paceline.cluster.agent.ranks import rank_link
from paceline.cluster.agent.ranks.rank_link import LINE_LIMIT_BYTES, MOST_PER_SECOND, RankLink, Said
from paceline.cluster.protocol import RankKey
from paceline.training.link import Broken, FailureReport, ProcessIdentity, RankHello
from tests.waiting import until

TIMEOUT_SECONDS = 10.0


class Heard:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.messages: list[tuple[RankKey, Said]] = []
        self.link = RankLink(path, lambda key, message: self.messages.append((key, message)), lambda process: process.job_id != "unknown")

    async def connect(self, job_id: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        writer.write(msgspec.json.encode(RankHello(job_id=job_id, generation=1, rank=0, pid=1, birth=ProcessIdentity(1, 0))) + b"\n")
        return reader, writer

    def kinds(self, job_id: str) -> list[str]:
        return [type(message).__name__ for key, message in self.messages if key.job_id == job_id]


@pytest.fixture
async def heard(tmp_path: Path) -> AsyncIterator[Heard]:
    heard = Heard(tmp_path / "agent.sock")
    await heard.link.start()
    yield heard
    await heard.link.close()


async def test_a_failure_with_a_long_traceback_is_heard(heard: Heard) -> None:
    _, writer = await heard.connect("job")
    failure = FailureReport(kind="exception", rank=0, message="no", traceback="\x01" * 64_000)
    writer.write(msgspec.json.encode(Broken(step=3, failure=failure)) + b"\n")
    await until(lambda: heard.kinds("job") == ["RankHello", "Broken"], "the failure")
    writer.close()


@pytest.mark.parametrize(
    "line",
    [b'{"type":"progress","step":-1}', b'{"type":"progress","step":18446744073709551615}', b"nonsense", b"x" * (2 * LINE_LIMIT_BYTES)],
    ids=["negative", "huge", "nonsense", "endless"],
)
async def test_a_rank_that_says_nonsense_loses_its_own_connection_only(heard: Heard, line: bytes) -> None:
    _, healthy = await heard.connect("healthy")
    reader, writer = await heard.connect("job")
    writer.write(line + b"\n")
    with contextlib.suppress(ConnectionError):  # reset, where it had not read everything
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await reader.read() == b""
    healthy.write(b'{"type":"progress","step":7}\n')
    await until(lambda: heard.kinds("healthy") == ["RankHello", "Progress"], "the healthy rank's progress")
    assert heard.kinds("job") == ["RankHello"]
    healthy.close()
    writer.close()


async def test_a_rank_that_speaks_without_end_waits_itself_and_no_other_does(heard: Heard) -> None:
    _, flooding = await heard.connect("job")
    _, healthy = await heard.connect("healthy")
    began = time.monotonic()
    flooding.write(b'{"type":"progress","step":7}\n' * 5_000)
    await until(lambda: len(heard.kinds("job")) >= MOST_PER_SECOND, "the first of the flood")
    healthy.write(b'{"type":"progress","step":7}\n')
    await until(lambda: heard.kinds("healthy") == ["RankHello", "Progress"], "the healthy rank's progress")
    assert len(heard.kinds("job")) <= MOST_PER_SECOND * (2 + time.monotonic() - began)
    healthy.close()
    flooding.close()


async def ended(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await reader.read() == b""
    return True


async def test_closing_it_while_ranks_live_on_is_no_error(heard: Heard, caplog: pytest.LogCaptureFixture) -> None:
    reader, writer = await heard.connect("job")
    await until(lambda: heard.kinds("job") == ["RankHello"], "the rank's hello")
    await heard.link.close()
    assert await ended(reader)
    assert caplog.text == ""
    writer.close()


async def test_connections_that_say_nothing_are_closed_and_leave_room_for_ranks(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script that held a thousand of them used up the agent's descriptors: nothing of its node was sent, and no rank could start."""
    monkeypatch.setattr(rank_link, "MAX_STRANGERS", 3)
    silent = [await asyncio.open_unix_connection(heard.path) for _ in range(10)]
    _, healthy = await heard.connect("healthy")
    await until(lambda: heard.kinds("healthy") == ["RankHello"], "the healthy rank's hello")
    for reader, _ in silent[:7]:
        assert await ended(reader)
    healthy.write(b'{"type":"progress","step":7}\n')
    await until(lambda: heard.kinds("healthy") == ["RankHello", "Progress"], "the healthy rank's progress")
    for writer in (healthy, *[writer for _, writer in silent]):
        writer.close()


async def test_a_hello_is_not_waited_for_without_end(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_link, "HELLO_SECONDS", 0.05)
    reader, writer = await asyncio.open_unix_connection(heard.path)
    writer.write(b'{"type": "hel')
    assert await ended(reader)
    writer.close()


async def test_a_process_has_one_connection_and_one_without_a_place_has_none(heard: Heard) -> None:
    former, first = await heard.connect("job")
    await until(lambda: heard.kinds("job") == ["RankHello"], "the first hello")
    _, second = await heard.connect("job")
    assert await ended(former)
    unknown, third = await heard.connect("unknown")
    assert await ended(unknown)
    second.write(b'{"type":"progress","step":7}\n')
    await until(lambda: heard.kinds("job") == ["RankHello", "RankHello", "Progress"], "the progress on the second")
    assert heard.kinds("unknown") == []
    for writer in (first, second, third):
        writer.close()
