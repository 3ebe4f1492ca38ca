from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from paceline.monitoring import recorder as recorder_module
from paceline.monitoring.points import MAX_NAMES, TRAINER_NAMES, DataDropped, MetricRecord
from paceline.monitoring.recorder import Recorder, recorder_at
from paceline.monitoring.sinks import MetricSpool, SteppedRecord
from paceline.monitoring.spool import SpoolReader

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

    def write(self, measurements: Sequence[SteppedRecord]) -> None:
        self.entered.set()
        assert self.let_go.wait(TIMEOUT_SECONDS)
        self.written += [measured.step for measured in measurements]

    def close(self) -> None:
        """Nothing is held."""


class FullDisk(MetricSpool):
    """Takes nothing until there is room."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.tried, self.has_room = threading.Event(), False

    def write(self, measurements: Sequence[SteppedRecord]) -> None:
        if not self.has_room:
            self.tried.set()
            raise OSError(28, "No space left on device")
        super().write(measurements)


class Picky(MetricSpool):
    """Raises at one step, whatever is written with it."""

    def write(self, measurements: Sequence[SteppedRecord]) -> None:
        if any(measured.step == 13 for measured in measurements):
            raise RuntimeError("no thirteen")
        super().write(measurements)


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


def test_a_stuck_disk_does_not_block_and_drops_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
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
    assert "90 records of metrics were dropped in all" in capsys.readouterr().err


def test_a_disk_that_stays_full_to_the_end_is_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sink = FullDisk(tmp_path / "metrics.spool")
    recorder = Recorder(sink)
    recorder.record(7, {})
    assert sink.tried.wait(TIMEOUT_SECONDS)
    recorder.close()
    assert recorder.dropped == 1
    said = capsys.readouterr().err
    assert "WARNING metrics of steps 7 to 7 not written" in said
    assert "WARNING 1 records of metrics are lost" in said


def test_what_a_full_disk_did_not_take_is_written_when_there_is_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "RETRY_SECONDS", 0.01)
    sink = FullDisk(tmp_path / "metrics.spool")
    recorder = Recorder(sink)
    recorder.record(1, {"loss": 1.0})
    assert sink.tried.wait(TIMEOUT_SECONDS)
    recorder.record(2, {"loss": 2.0})
    sink.has_room = True
    recorder.close()
    assert [(record.seq, record.step) for record in read(tmp_path / "metrics.spool")] == [(1, 1), (2, 2)]
    assert recorder.dropped == 0


def test_one_record_that_cannot_be_written_does_not_end_the_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(Picky(tmp_path / "metrics.spool"))
    told: list[DataDropped] = []
    recorder.on_dropped = told.append
    for step in range(1, 31):
        recorder.record(step, {"loss": 1.0})
    recorder.flush()
    recorder.record(13, {"loss": 1.0})
    recorder.record(31, {"loss": 1.0})
    recorder.close()
    records = read(tmp_path / "metrics.spool")
    assert [record.step for record in records] == [*range(1, 13), *range(14, 32)]
    assert [record.seq for record in records] == list(range(1, 31))
    assert recorder.dropped == 2
    assert [(each.what, each.example) for each in told] == [("unwritable metric records", "step 13")]
    assert capsys.readouterr().err.count("no thirteen") == 1


def test_the_thread_survives_whoever_listens_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(MetricSpool(tmp_path / "metrics.spool"))
    recorder.after_write = lambda: 1 // 0  # type: ignore[assignment, return-value]
    for step in range(3):
        recorder.record(step, {})
        recorder.flush()
    recorder.close()
    assert len(read(tmp_path / "metrics.spool")) == 3
    assert capsys.readouterr().err.count("ZeroDivisionError") == 1


def test_a_user_of_50_000_names_ends_no_job_and_costs_the_trainer_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorder = Recorder(MetricSpool(tmp_path / "metrics.spool"))
    told: list[DataDropped] = []
    recorder.on_dropped = told.append
    recorder.record_own(1, {f"w{number}": 1.0 for number in range(50_000)})
    recorder.record_own(2, {"w3": 2.0, "another": 1.0})
    recorder.record(2, {"loss": 1.0})
    recorder.close()
    first, second, third = read(tmp_path / "metrics.spool")
    assert len(first.values) == MAX_NAMES
    assert (second.values, third.values) == ({"w3": 2.0}, {"loss": 1.0})
    assert recorder.dropped_values == 50_000 - MAX_NAMES + 1
    assert [(each.what, each.count, each.example) for each in told] == [("metric names", 50_000 - MAX_NAMES, f"w{MAX_NAMES}")]
    assert capsys.readouterr().err.count("over 1000 distinct names") == 2  # once at once, once with the sum at the end


def test_a_burst_of_a_users_own_values_is_kept_to_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "ROOM_SECONDS", 60.0)  # a busy disk is not a stuck one
    recorder = Recorder(MetricSpool(tmp_path / "metrics.spool"), capacity=100)
    for step in range(20_000):
        recorder.record_own(step, {"mine": 1.0})
    recorder.close()
    assert recorder.dropped == 0
    assert [record.step for record in read(tmp_path / "metrics.spool")] == list(range(20_000))


def test_a_users_flood_leaves_room_for_the_trainers_own_metrics(capsys: pytest.CaptureFixture[str]) -> None:
    sink = StuckSink()
    recorder = Recorder(sink, capacity=10)
    recorder.record(0, {})
    assert sink.entered.wait(TIMEOUT_SECONDS)
    for step in range(1, 101):
        recorder.record_own(step, {"mine": 1.0})
    for step in range(101, 104):
        recorder.record(step, {})
    sink.let_go.set()
    recorder.close()
    assert sink.written == [0, 1, 2, 3, 4, 5, 101, 102, 103]
    assert recorder.dropped == 95
    assert capsys.readouterr().err.count("recorded faster than the disk takes them") == 1


@pytest.mark.parametrize(("reserved", "name", "refused"), [((), "samples", True), ((), "loss", False), (TRAINER_NAMES, "loss", True)])
def test_names_that_a_trainer_records_are_refused_for_a_users_metrics(
    tmp_path: Path, reserved: frozenset[str], name: str, refused: bool
) -> None:
    recorder = Recorder(MetricSpool(tmp_path / "metrics.spool"))
    recorder.reserve(frozenset(reserved))
    if refused:
        with pytest.raises(ValueError, match=f"metric {name} is recorded by the trainer itself: .* such as my_{name}"):
            recorder.record_own(1, {name: 1.0})
    else:
        recorder.record_own(1, {name: 1.0})
    recorder.close()
    assert len(read(tmp_path / "metrics.spool")) == (0 if refused else 1)


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
