"""Readings on disk: numbered, sent oldest first, kept through restarts, bounded while nobody takes them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from paceline.cluster.agent.upload import readings_spool
from paceline.cluster.agent.upload.readings_spool import ReadingsParcel, ReadingsSpool
from paceline.monitoring.readings import Reading
from paceline.monitoring.spool import SpoolWriter

MOST = 1 << 21
TIMEOUT_SECONDS = 10.0


def reading(time: float) -> Reading:
    return Reading(time, {"host": {"cpu_percent": 1.5}, "gpu:0": {"power_watts": 300.0}})


def parcel_of(spool: ReadingsSpool) -> ReadingsParcel:
    found = spool.parcel(MOST)
    assert found is not None
    return found


def times_of(parcel: ReadingsParcel) -> list[float]:
    return [time for record in parcel.readings.records for time in record.times]


def test_what_is_acknowledged_is_not_sent_again_by_this_agent_or_the_next(tmp_path: Path) -> None:
    spool = ReadingsSpool(tmp_path)
    spool.append([reading(1.0), reading(2.0)])
    spool.append([reading(3.0)])
    first = parcel_of(spool)
    assert [(record.seq, record.times) for record in first.readings.records] == [(1, [1.0, 2.0]), (2, [3.0])]
    assert spool.acknowledge(first, 1)
    assert times_of(parcel_of(spool)) == [3.0]
    spool.close()
    again = ReadingsSpool(tmp_path)
    again.append([reading(4.0)])
    left = parcel_of(again)
    assert times_of(left) == [3.0]
    assert left.readings.records[0].seq == 2
    again.acknowledge(left, 2)
    newest = parcel_of(again)
    assert times_of(newest) == [4.0]
    assert newest.readings.spool > left.readings.spool
    assert len(list(tmp_path.glob("*.spool"))) == 1  # the file that was sent to its end is gone


def test_an_acknowledgement_of_what_was_not_sent_moves_nothing(tmp_path: Path) -> None:
    spool = ReadingsSpool(tmp_path)
    spool.append([reading(1.0)])
    assert not spool.acknowledge(parcel_of(spool), 0)
    assert times_of(parcel_of(spool)) == [1.0]


def test_a_record_that_an_agent_died_over_is_dropped_and_the_rest_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    spool = ReadingsSpool(tmp_path)
    spool.append([reading(1.0)])
    spool.close()
    (file,) = tmp_path.glob("*.spool")
    file.write_bytes(file.read_bytes() + b"\x40\0\0\0half of a record")
    again = ReadingsSpool(tmp_path)
    again.append([reading(2.0)])
    parcel = parcel_of(again)
    assert times_of(parcel) == [1.0]
    again.acknowledge(parcel, 1)
    assert times_of(parcel_of(again)) == [2.0]
    assert "no whole record" in caplog.text


def test_while_nobody_takes_them_the_oldest_are_given_up_and_that_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(readings_spool, "FILE_BYTES", 100)
    spool = ReadingsSpool(tmp_path, max_bytes=1_000)
    for second in range(40):
        spool.append([reading(float(second))])
    assert sum(path.stat().st_size for path in tmp_path.glob("*.spool")) <= 1_000
    assert times_of(parcel_of(spool))[0] > 0
    assert caplog.text.count("the oldest are given up") == 1


def test_a_file_that_is_just_begun_is_not_dropped_as_one_that_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = ReadingsSpool(tmp_path)
    senders: list[threading.Thread] = []

    def begin(path: Path) -> SpoolWriter:
        """Begin a file while another thread looks for what is to be sent."""
        writer = SpoolWriter(path)
        senders.append(threading.Thread(target=spool.parcel, args=(MOST,)))
        senders[-1].start()
        senders[-1].join(timeout=0.2)
        return writer

    monkeypatch.setattr(readings_spool, "SpoolWriter", begin)
    spool.append([reading(1.0)])
    senders[-1].join(timeout=TIMEOUT_SECONDS)
    assert times_of(parcel_of(spool)) == [1.0]


def test_readings_go_on_after_somebody_has_removed_their_file(tmp_path: Path) -> None:
    spool = ReadingsSpool(tmp_path)
    spool.append([reading(1.0)])
    next(tmp_path.glob("*.spool")).unlink()
    spool.append([reading(2.0)])
    assert times_of(parcel_of(spool)) == [2.0]


def test_a_damaged_mark_is_set_aside_and_all_is_sent_again(tmp_path: Path) -> None:
    spool = ReadingsSpool(tmp_path)
    spool.append([reading(1.0)])
    spool.acknowledge(parcel_of(spool), 1)
    spool.close()
    (tmp_path / "acknowledged.json").write_text("{")
    assert times_of(parcel_of(ReadingsSpool(tmp_path))) == [1.0]
    assert (tmp_path / "acknowledged.json.damaged").exists()
