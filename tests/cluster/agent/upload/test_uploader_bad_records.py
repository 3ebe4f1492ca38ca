"""One rank's news that cannot be sent, and everybody else's that can: against a real HTTP coordinator."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.upload import spool as spool_module
from paceline.cluster.agent.upload import uploader as uploader_module
from paceline.cluster.agent.upload.delivery import UploadFailedError
from paceline.cluster.agent.upload.spool import RankSpool
from paceline.cluster.agent.upload.uploader import Uploader
from paceline.cluster.protocol import RankKey
from paceline.monitoring.points import MetricRecord, RankEvent, Upload
from paceline.monitoring.spool import SpoolWriter
from paceline.training.rank_folder import RankFolder
from tests.cluster.agent.coordinator import CREDENTIAL, Coordinator, pauses_for_an_hour

BAD, GOOD = RankKey("bad", 1, 0), RankKey("good", 1, 0)


class Node:
    def __init__(self, http: httpx.AsyncClient, data: Path) -> None:
        self.drained: list[RankKey] = []
        self.uploader = Uploader(http, self.drained.append)
        self.spools: dict[RankKey, RankSpool] = {}
        self.data = data

    def rank(self, key: RankKey, *, steps: int = 0, events: int = 0, lines: int = 0) -> RankFolder:
        folder = RankFolder(self.data, *key)
        folder.path.mkdir(parents=True)
        records = [MetricRecord(seq=step, step=step, time=0.0, values={"loss": 1.0}) for step in range(1, steps + 1)]
        news = [RankEvent(seq=seq, time=0.0, kind="sample", data={"step": seq}) for seq in range(1, events + 1)]
        for path, items in ((folder.metrics, records), (folder.events, news)):
            writer = SpoolWriter(path)
            for item in items:
                writer.append(msgspec.json.encode(item))
            writer.close()
        folder.output.write_text("".join(f"line {number}\n" for number in range(lines)))
        self.follow(key, folder)
        return folder

    def follow(self, key: RankKey, folder: RankFolder) -> None:
        self.spools[key] = RankSpool(folder, key)
        self.uploader.follow(key, self.spools[key])

    async def end(self) -> None:
        """All ranks exit; send what can be sent."""
        for key in self.spools.keys() - set(self.drained):
            self.uploader.exited(key)
        for _ in range(3):
            await self.uploader.finish()


@pytest.fixture
async def node(coordinator: Coordinator, tmp_path: Path) -> AsyncIterator[Node]:
    async with httpx.AsyncClient(base_url=coordinator.url, headers={"Authorization": f"Bearer {CREDENTIAL}"}) as http:
        yield Node(http, tmp_path)


def steps(coordinator: Coordinator, key: RankKey) -> list[int]:
    return [record.step for record in coordinator.of(key.job_id).streams["metrics"] if not record.set_aside]


def notes(coordinator: Coordinator, key: RankKey) -> list[str]:
    return [record.set_aside for record in coordinator.of(key.job_id).streams["metrics"] if record.set_aside]


def has_step(upload: Upload, step: int) -> bool:
    return any(record.step == step for batch in upload.batches for record in batch.metrics if batch.job_id == BAD.job_id)


async def test_a_record_that_does_not_decode_holds_up_nothing(
    node: Node, coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    folder = node.rank(BAD, steps=3, lines=2)
    node.rank(GOOD, steps=5, events=1, lines=1)
    writer = SpoolWriter(folder.metrics)
    for step in (b"0.5", b"0.5", b"7"):
        writer.append(b'{"seq":4,"step":' + step + b',"time":1.0,"values":{"loss":1.0}}')
    writer.close()
    await node.end()
    assert (steps(coordinator, BAD), steps(coordinator, GOOD)) == ([1, 2, 3, 7], [1, 2, 3, 4, 5])
    assert [note.startswith("Expected `int`, got `float`") for note in notes(coordinator, BAD)] == [True, True]
    assert sorted(node.drained) == [BAD, GOOD]
    assert node.spools[BAD].set_aside == 2
    assert sum("is set aside" in record.message for record in caplog.records) == 1


async def test_a_record_that_the_coordinator_refuses_is_found_and_set_aside_alone(node: Node, coordinator: Coordinator) -> None:
    node.rank(BAD, steps=40, events=3, lines=5)
    for rank in range(3):
        node.rank(RankKey("good", 1, rank), steps=20, events=2, lines=2)
    coordinator.refuse = lambda upload, body: 422 if has_step(upload, 13) or has_step(upload, 30) else None
    assert await node.uploader.upload_once()
    for rank in range(3):  # with the first upload already
        assert {name: len(each) for name, each in coordinator.of("good", rank).streams.items()} == {"metrics": 20, "logs": 2, "events": 2}
    await node.end()
    assert steps(coordinator, BAD) == [step for step in range(1, 41) if step not in (13, 30)]
    assert all("the coordinator refuses it: upload answered 422: no, not this" in note for note in notes(coordinator, BAD))
    assert len(coordinator.of("bad").streams["events"]) == 3
    assert len(coordinator.of("bad").text) == 5
    assert BAD in node.drained
    assert len(node.drained) == 4


@pytest.mark.parametrize(("stream", "record"), [("events", 2), ("logs", 3)])
async def test_an_event_or_a_line_that_is_refused_leaves_a_note(node: Node, coordinator: Coordinator, stream: str, record: int) -> None:
    node.rank(BAD, steps=4, events=4, lines=4)

    def refuse(upload: Upload, _: bytes) -> int | None:
        items: list[Any] = [item for batch in upload.batches for item in getattr(batch, stream)]
        bad = (item for item in items if item.seq == record and "refuses" not in str(item))
        return 422 if any(bad) else None

    coordinator.refuse = refuse
    await node.end()
    assert {name: len(each) for name, each in coordinator.of("bad").streams.items()} == {"metrics": 4, "logs": 4, "events": 4}
    note = coordinator.of("bad").streams[stream][record - 1]
    assert "the coordinator refuses it" in str(note)
    assert steps(coordinator, BAD) == [1, 2, 3, 4]
    assert node.drained == [BAD]


async def test_a_note_that_is_refused_too_holds_up_its_own_rank_only(
    node: Node, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader_module, "Backoff", pauses_for_an_hour)
    node.rank(BAD, steps=4)
    node.rank(GOOD, steps=4, lines=4)
    coordinator.refuse = lambda upload, body: 422 if any(batch.job_id == BAD.job_id for batch in upload.batches) else None
    await node.end()
    assert (steps(coordinator, GOOD), node.drained) == ([1, 2, 3, 4], [GOOD])
    coordinator.refuse = lambda upload, body: None
    node.uploader.retry()
    await node.end()
    assert steps(coordinator, BAD) == [2, 3, 4]
    assert sorted(node.drained) == [BAD, GOOD]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 429, 500, 503, 507])
async def test_an_answer_that_is_not_about_a_record_sets_nothing_aside(node: Node, coordinator: Coordinator, status: int) -> None:
    node.rank(BAD, steps=4, lines=2)
    coordinator.refuse = lambda upload, body: status  # of a proxy, or a coordinator in trouble: whatever is sent
    with pytest.raises(UploadFailedError, match=str(status)):
        await node.uploader.finish()
    coordinator.refuse = lambda upload, body: None
    await node.end()
    assert (steps(coordinator, BAD), notes(coordinator, BAD)) == ([1, 2, 3, 4], [])


async def test_an_upload_too_large_for_a_proxy_is_sent_in_parts(node: Node, coordinator: Coordinator) -> None:
    for job in ("one", "two", "three"):
        node.rank(RankKey(job, 1, 0), steps=200, lines=20)
    coordinator.refuse = lambda upload, body: 413 if len(body) > 4_000 else None
    await node.end()
    for job in ("one", "two", "three"):
        assert len(coordinator.of(job).streams["metrics"]) == 200
        assert len(coordinator.of(job).text) == 20
    assert len(node.drained) == 3


async def test_no_upload_has_more_batches_than_the_coordinator_takes(
    node: Node, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader_module, "MAX_BATCHES", 3)
    for rank in range(8):
        node.rank(RankKey("job", 1, rank), steps=1)
    seen: list[int] = []
    coordinator.refuse = lambda upload, body: seen.append(len(upload.batches))  # type: ignore[func-returns-value]
    await node.uploader.finish()
    assert sorted(seen) == [2, 3, 3]


async def test_word_of_a_checkpoint_does_not_wait_behind_anybodys_metrics(node: Node, coordinator: Coordinator) -> None:
    for rank in range(3):
        node.rank(RankKey("job", 1, rank), steps=5_000, events=2)
    await node.uploader.upload_once()
    assert [len(coordinator.of("job", rank).streams["events"]) for rank in range(3)] == [2, 2, 2]
    assert sum(len(coordinator.of("job", rank).streams["metrics"]) for rank in range(3)) < 15_000


async def test_a_spool_that_is_no_file_holds_up_no_other_rank(node: Node, coordinator: Coordinator) -> None:
    folder = node.rank(BAD, lines=1)
    folder.metrics.unlink()
    os.mkfifo(folder.metrics)
    folder.events.unlink()
    folder.events.symlink_to("/dev/zero")
    node.rank(GOOD, steps=3)
    await node.end()
    assert steps(coordinator, GOOD) == [1, 2, 3]
    assert coordinator.of("bad").text[0] == "line 0"
    assert sorted(node.drained) == [BAD, GOOD]


async def test_whatever_is_raised_over_one_ranks_files_holds_up_no_other(
    node: Node, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploader_module, "Backoff", pauses_for_an_hour)
    node.rank(BAD, steps=3)
    node.rank(GOOD, steps=3)
    with monkeypatch.context() as broken:
        broken.setattr(node.spools[BAD], "collect_metrics", lambda *_: 1 // 0)
        await node.end()
        assert (steps(coordinator, GOOD), node.drained) == ([1, 2, 3], [GOOD])
    node.uploader.retry()
    await node.end()
    assert steps(coordinator, BAD) == [1, 2, 3]
    assert sorted(node.drained) == [BAD, GOOD]


async def test_uploads_that_raise_are_started_over(node: Node, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.cluster.agent.isolation.FIRST_RESTART_SECONDS", 0.01)
    node.rank(GOOD, steps=3)
    collect, raised = node.uploader._collect, asyncio.Event()

    def once() -> Any:
        if not raised.is_set():
            raised.set()
            raise RuntimeError("a bug")
        return collect()

    monkeypatch.setattr(node.uploader, "_collect", once)
    running = asyncio.create_task(Isolation().keep_running("uploads", node.uploader.run))
    await coordinator.until(lambda c: len(steps(c, GOOD)) == 3)
    assert raised.is_set()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_full_disk_keeps_nothing_but_cut_lines_from_being_sent_and_loses_nothing(
    node: Node, coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = node.rank(BAD, steps=3, events=1)
    folder.output.write_text("half a line")
    with monkeypatch.context() as full:
        full.setattr(spool_module, "write_durably", no_space)
        await node.end()
        assert (steps(coordinator, BAD), len(coordinator.of("bad").streams["events"])) == ([1, 2, 3], 1)
        assert coordinator.of("bad").text == []
        assert node.drained == []
    await node.end()
    assert coordinator.of("bad").text == ["half a line"]
    assert node.drained == [BAD]


@pytest.mark.parametrize("replaced", [("metrics",), ("events",), ("output",), ("acknowledged",), ("metrics", "output")])
async def test_a_folder_in_the_place_of_a_file_holds_up_nothing(
    node: Node, coordinator: Coordinator, caplog: pytest.LogCaptureFixture, replaced: tuple[str, ...]
) -> None:
    """Its rank is drained all the same, and each of them is told of once."""
    folder = node.rank(BAD, steps=3, events=2, lines=2)
    node.rank(GOOD, steps=5, lines=1)
    for name in replaced:
        path: Path = getattr(folder, name)
        path.unlink(missing_ok=True)
        (path / "inner").mkdir(parents=True)
    await node.end()
    assert sorted(node.drained) == [BAD, GOOD]
    assert steps(coordinator, GOOD) == [1, 2, 3, 4, 5]
    told = [record.message for record in caplog.records]
    assert len(told) == len(set(told))


async def test_damaged_bookkeeping_is_set_aside_and_everything_sent_again(node: Node, coordinator: Coordinator) -> None:
    folder = node.rank(BAD, steps=3, lines=2)
    await node.end()
    node.drained.clear()
    folder.acknowledged.write_text('{"metrics": {"seq": -3')
    node.follow(BAD, folder)
    await node.end()
    assert steps(coordinator, BAD) == [1, 2, 3]
    assert node.drained == [BAD]
    assert folder.acknowledged.with_name("acknowledged.json.damaged").exists()


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
