from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from monitoring.points import MetricRecord
from monitoring.recorder import Recorder, recorder_at
from monitoring.sinks import Measured, MetricSpool
from monitoring.spool import SpoolReader

TIMEOUT_SECONDS = 10.0


def read(path: Path) -> list[MetricRecord]:
    reader, payloads = SpoolReader(path), []
    while records := reader.read():
        payloads += records
    return [msgspec.json.decode(payload, type=MetricRecord) for payload in payloads]


class StuckSink:
    """A disk that hangs until it is let go."""

    def __init__(self) -> None:
        self.entered, self.let_go = threading.Event(), threading.Event()
        self.written: list[int] = []

    def write(self, measurements: Iterable[Measured]) -> None:
        self.entered.set()
        assert self.let_go.wait(TIMEOUT_SECONDS)
        self.written += [measured.step for measured in measurements]

    def close(self) -> None:
        """Nothing is held."""


class FullDisk(StuckSink):
    def write(self, measurements: Iterable[Measured]) -> None:
        self.entered.set()
        raise OSError(28, "No space left on device")


def test_everything_recorded_is_written_in_order_and_numbered(tmp_path: Path) -> None:
    recorder = Recorder(MetricSpool(tmp_path / "metrics.spool"))
    for step in range(1, 501):
        recorder.record(step, {"loss": step / 2})
    recorder.close()
    records = read(tmp_path / "metrics.spool")
    assert [(record.seq, record.step, record.values) for record in records] == [(s, s, {"loss": s / 2}) for s in range(1, 501)]
    assert recorder.dropped == 0


def test_what_is_recorded_before_a_flush_is_written_after_it(tmp_path: Path) -> None:
    recorder = Recorder(MetricSpool(tmp_path / "metrics.spool"))
    for step in range(1, 101):
        recorder.record(step, {"loss": 1.0})
        recorder.flush()
        assert read(tmp_path / "metrics.spool")[-1].step == step
    recorder.close()


def test_a_stuck_disk_does_not_block_and_drops_are_counted() -> None:
    sink = StuckSink()
    recorder = Recorder(sink, capacity=10)
    recorder.record(0, {})
    assert sink.entered.wait(TIMEOUT_SECONDS)
    for step in range(1, 101):
        recorder.record(step, {})
    assert recorder.dropped == 90
    sink.let_go.set()
    recorder.close()
    assert sink.written == list(range(11))


def test_a_full_disk_is_counted_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    sink = FullDisk()
    recorder = Recorder(sink)
    recorder.record(7, {})
    assert sink.entered.wait(TIMEOUT_SECONDS)
    recorder.close()
    assert recorder.dropped == 1
    assert "WARNING metrics of steps 7 to 7 not written" in capsys.readouterr().err


def test_news_follow_what_is_on_disk(tmp_path: Path) -> None:
    told, seen = threading.Event(), []
    recorder = Recorder(MetricSpool(tmp_path / "metrics.spool"))

    def look() -> None:
        seen.append(len(read(tmp_path / "metrics.spool")))
        told.set()

    recorder.after_write = look
    recorder.record(1, {"loss": 1.0})
    assert told.wait(TIMEOUT_SECONDS)
    recorder.close()
    assert seen[0] == 1


def test_one_spool_has_one_recorder(tmp_path: Path) -> None:
    recorder = recorder_at(tmp_path / "metrics.spool")
    assert recorder_at(tmp_path / "metrics.spool") is recorder
    recorder.close()
