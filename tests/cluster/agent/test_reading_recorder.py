"""A record every few readings; a driver that hangs leaves its cards out and delays nothing."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from paceline.cluster.agent import reading_recorder
from paceline.cluster.agent.isolation import Isolation
from paceline.cluster.agent.reading_recorder import RECORD_READINGS, ReadingRecorder
from paceline.cluster.agent.upload.readings_spool import ReadingsSpool
from paceline.cluster.agent.vitals import UNKNOWN_HOST, RankHeartbeats
from paceline.monitoring.readings import Reading
from paceline.monitoring.samples import Gpu, GpuSample, HostSample
from tests.waiting import wait_until

TIMEOUT_SECONDS = 5.0


def recorder(
    take: Callable[[], Reading], folder: Path, on_record: Callable[[], None] = lambda: None
) -> tuple[ReadingRecorder, ReadingsSpool]:
    spool = ReadingsSpool(folder)
    return ReadingRecorder(take, spool, on_record, Isolation()), spool


async def test_readings_are_written_together_and_told(tmp_path: Path) -> None:
    times = iter(range(100))
    told: list[int] = []
    taking, spool = recorder(lambda: Reading(float(next(times)), {"host": {"cpu_percent": 1.0}}), tmp_path, lambda: told.append(1))
    for _ in range(RECORD_READINGS * 2 - 1):
        await taking.step_once()
    assert told == [1]
    parcel = spool.parcel(1 << 20)
    assert parcel is not None
    assert [record.times for record in parcel.readings.records] == [[float(second) for second in range(RECORD_READINGS)]]


async def test_seconds_in_which_nothing_was_read_are_left_out(tmp_path: Path) -> None:
    taking, spool = recorder(lambda: Reading(1.0, {}), tmp_path)
    for _ in range(RECORD_READINGS * 2):
        await taking.step_once()
    assert spool.parcel(1 << 20) is None


class ReadingsOnFullDisk(ReadingsSpool):
    """Takes a record only while there is room."""

    has_room = False

    def append(self, readings: Sequence[Reading]) -> None:
        if not self.has_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(readings)


async def test_readings_wait_for_room_on_a_full_disk_and_those_that_are_given_up_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each record that was tried on a full disk was gone, and nobody knew how many."""
    monkeypatch.setattr(reading_recorder, "MOST_WAITING", 12)
    times, spool = iter(range(100)), ReadingsOnFullDisk(tmp_path)
    taking = ReadingRecorder(lambda: Reading(float(next(times)), {"host": {"cpu_percent": 1.0}}), spool, lambda: None, Isolation())
    for _ in range(16):
        await taking.step_once()
    spool.has_room = True
    for _ in range(3):
        await taking.step_once()
    parcel = spool.parcel(1 << 20)
    assert parcel is not None
    kept = [second for record in parcel.readings.records for second in record.times]
    assert kept == [float(second) for second in range(4, 17)]
    assert [record.message for record in caplog.records if "given up" in record.message] == [
        "4 readings of the node found no room on its disk and were given up"
    ]


class HangingCards:
    gpus: tuple[Gpu, ...] = (Gpu(index=0, uuid="GPU-0", name="card", memory_bytes=1),)

    def __init__(self) -> None:
        self.answers = threading.Event()

    def sample(self) -> tuple[GpuSample, ...]:
        self.answers.wait(TIMEOUT_SECONDS)
        return (GpuSample(index=0, uuid="GPU-0", power_watts=300.0),)

    def close(self) -> None:
        """Nothing is open."""


class Host:
    def sample(self, now: float) -> HostSample:
        return UNKNOWN_HOST


async def test_a_driver_that_hangs_costs_its_own_readings_only(tmp_path: Path) -> None:
    cards = HangingCards()
    vitals = RankHeartbeats(Host(), cards, None)
    try:
        began = time.monotonic()
        wait_until(lambda: "host" in vitals.take().values, "a reading of the host", seconds=TIMEOUT_SECONDS)
        assert vitals.heartbeat(0).host == UNKNOWN_HOST
        assert time.monotonic() - began < TIMEOUT_SECONDS / 2  # the driver still hangs
        assert "gpu:0" not in vitals.take().values
    finally:
        cards.answers.set()
    wait_until(lambda: "gpu:0" in vitals.take().values, "a reading of the card", seconds=TIMEOUT_SECONDS)
