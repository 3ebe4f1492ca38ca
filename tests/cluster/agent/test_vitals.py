"""Heartbeats go on whatever the readings do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from paceline.cluster.agent import vitals
from paceline.cluster.agent.vitals import UNKNOWN_HOST, RankHeartbeats
from paceline.monitoring.samples import Gpu, GpuSample, HostSample
from tests.waiting import wait_until

CARD = Gpu(index=0, uuid="GPU-0", name="card", memory_bytes=1)
TIMEOUT_SECONDS = 5.0


class Host:
    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.threads: set[int] = set()
        self.fails = False

    def sample(self, now: float) -> HostSample:
        self.threads.add(threading.get_ident())
        self.answers.wait(TIMEOUT_SECONDS)
        if self.fails:
            raise OSError("stale mount")
        return UNKNOWN_HOST


class Gpus:
    gpus = (CARD,)

    def __init__(self) -> None:
        self.answers, self.closed, self.started = threading.Event(), False, 0

    def sample(self) -> tuple[GpuSample, ...]:
        self.started += 1
        self.answers.wait(TIMEOUT_SECONDS)
        return (GpuSample(index=0, uuid="GPU-0", utilization_percent=50.0),)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def gpus() -> Iterator[Gpus]:
    gpus = Gpus()
    yield gpus
    gpus.answers.set()


def test_a_driver_that_hangs_delays_no_heartbeat_and_keeps_one_thread(
    gpus: Gpus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(vitals, "SLOW_SECONDS", 0.05)
    readings = RankHeartbeats(Host(), gpus, None)
    began = time.monotonic()
    assert readings.heartbeat(3).backlog_records == 3
    assert time.monotonic() - began < 1.0
    wait_until(lambda: any(sample.error for sample in readings.heartbeat(0).gpus), "the word about the driver", seconds=TIMEOUT_SECONDS)
    (sample,) = readings.heartbeat(0).gpus
    assert sample.uuid == "GPU-0"
    assert sample.error is not None
    assert sample.error.startswith("no reading of the GPUs for")
    assert gpus.started == 1
    assert caplog.text.count("no reading of the GPUs") == 1
    readings.close()  # would hang with the driver
    assert not gpus.closed


def test_readings_that_come_back_are_told_again(gpus: Gpus) -> None:
    readings = RankHeartbeats(Host(), gpus, None)
    gpus.answers.set()
    wait_until(lambda: readings.heartbeat(0).gpus, "a reading", seconds=TIMEOUT_SECONDS)
    assert readings.heartbeat(0).gpus[0].utilization_percent == 50.0


def test_a_reading_that_fails_is_told_once_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    host = Host()
    host.fails = True
    readings = RankHeartbeats(host, None, "no GPU")
    wait_until(lambda: readings.heartbeat(0) and "stale mount" in caplog.text, "the word about the reading", seconds=TIMEOUT_SECONDS)
    for _ in range(20):
        assert readings.heartbeat(0).gpu_error == "no GPU"
    assert caplog.text.count("stale mount") == 1


def test_all_readings_are_taken_in_one_thread_which_ends_with_them() -> None:
    host = Host()
    readings = RankHeartbeats(host, None, "no GPU")
    for _ in range(3):
        wait_until(lambda: readings.take().values, "a new reading", seconds=TIMEOUT_SECONDS)
    (thread,) = host.threads
    readings.close()
    wait_until(lambda: thread not in {each.ident for each in threading.enumerate()}, "the end of the thread", seconds=TIMEOUT_SECONDS)
