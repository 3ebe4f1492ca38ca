"""Heartbeats go on whatever the readings do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import msgspec
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
        self.started, self.fails, self.reading = 0, False, UNKNOWN_HOST

    def sample(self, now: float) -> HostSample:
        self.threads.add(threading.get_ident())
        self.started += 1
        self.answers.wait(TIMEOUT_SECONDS)
        if self.fails:
            raise OSError("stale mount")
        return self.reading


class Gpus:
    gpus: tuple[Gpu, ...] = (CARD,)

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


def test_the_utilization_of_a_card_is_not_known_while_the_driver_hangs(gpus: Gpus, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stood still, so that a job that hung with its driver passed for one that computes."""
    readings = RankHeartbeats(Host(), gpus, None)
    gpus.answers.set()
    wait_until(lambda: readings.gpu_percent(0) == 50.0, "a reading", seconds=TIMEOUT_SECONDS)
    assert readings.gpu_percent(1) is None
    gpus.answers.clear()
    wait_until(lambda: readings.take() and gpus.started == 2, "the next reading, which hangs", seconds=TIMEOUT_SECONDS)
    monkeypatch.setattr(vitals, "SLOW_SECONDS", -1.0)
    assert readings.gpu_percent(0) is None


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


def test_a_machine_that_cannot_be_read_is_told_as_unknown_and_not_by_its_last_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that did not answer left readings of yesterday on the page."""
    host = Host()
    host.reading = msgspec.structs.replace(UNKNOWN_HOST, memory_total_bytes=9)
    readings = RankHeartbeats(host, None, "no GPU")
    wait_until(lambda: readings.heartbeat(0).host == host.reading, "a reading", seconds=TIMEOUT_SECONDS)
    host.answers.clear()
    wait_until(lambda: readings.take() and host.started == 2, "the next reading, which hangs", seconds=TIMEOUT_SECONDS)
    monkeypatch.setattr(vitals, "SLOW_SECONDS", -1.0)
    assert readings.heartbeat(0).host == UNKNOWN_HOST
    host.answers.set()


def test_all_readings_are_taken_in_one_thread_which_ends_with_them() -> None:
    host = Host()
    readings = RankHeartbeats(host, None, "no GPU")
    for _ in range(3):
        wait_until(lambda: readings.take().values, "a new reading", seconds=TIMEOUT_SECONDS)
    (thread,) = host.threads
    readings.close()
    wait_until(lambda: thread not in {each.ident for each in threading.enumerate()}, "the end of the thread", seconds=TIMEOUT_SECONDS)
