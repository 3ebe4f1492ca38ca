from __future__ import annotations

import errno
import math
import os
from pathlib import Path

import msgspec
import pytest

from paceline.monitoring.points import MetricRecord, RankEvent
from paceline.monitoring.recorder import Measurement
from paceline.monitoring.sinks import EventSpool, MetricSpool, on_the_wire
from paceline.monitoring.spool import SpoolReader


@pytest.mark.parametrize(("value", "wire"), [(1.5, 1.5), (math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity"), (-0.0, -0.0)])
def test_numbers_that_json_lacks_travel_by_name(value: float, wire: float | str) -> None:
    assert on_the_wire(value) == wire


def test_what_is_written_can_be_read_before_the_spool_is_closed(tmp_path: Path) -> None:
    spool = MetricSpool(tmp_path / "metrics.spool")
    spool.write([Measurement(3, 10.0, {"loss": math.nan, "step_seconds": 0.5})])
    (payload,) = SpoolReader(tmp_path / "metrics.spool").read()
    record = msgspec.json.decode(payload, type=MetricRecord)
    assert record == MetricRecord(seq=1, step=3, time=10.0, values={"loss": "NaN", "step_seconds": 0.5})
    spool.close()


def test_a_new_process_continues_the_numbers_after_a_torn_tail(tmp_path: Path) -> None:
    path = tmp_path / "events.spool"
    first = EventSpool(path)
    first.emit("sample", {"step": 1, "text": "a"})
    first.emit("sample", {"step": 2, "text": "b"})
    first.close()
    path.write_bytes(path.read_bytes()[:-3])
    second = EventSpool(path)
    second.emit("sample", {"step": 3, "text": "c"})
    events = [msgspec.json.decode(payload, type=RankEvent) for payload in SpoolReader(path).read()]
    assert [(event.seq, event.data["step"]) for event in events] == [(1, 1), (2, 3)]
    second.close()


def test_events_that_a_full_disk_does_not_take_are_written_later_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = EventSpool(tmp_path / "events.spool")
    spool.emit("sample", {"step": 1})
    with monkeypatch.context() as full:
        full.setattr(os, "write", no_space)
        spool.emit("sample", {"step": 2})
        spool.emit("sample", {"step": 3})
    assert len(SpoolReader(tmp_path / "events.spool").read()) == 1
    spool.write_waiting()
    events = [msgspec.json.decode(payload, type=RankEvent) for payload in SpoolReader(tmp_path / "events.spool").read()]
    assert [(event.seq, event.data["step"]) for event in events] == [(1, 1), (2, 2), (3, 3)]
    assert capsys.readouterr().err.count("No space left on device") == 1
    spool.close()


def no_space(*_: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
