"""Memory of a rank's process: the peak is never below what is held now, and never falls."""

from __future__ import annotations

import mmap
import time
from itertools import count

import pytest
import torch

from paceline.training.reporting.memory import MemoryMeter

BLOCK_BYTES = 200_000


def test_the_peak_is_never_below_the_memory_of_this_moment() -> None:
    """Linux's own peak is: it lags by some pages."""
    meter, held, readings = MemoryMeter("cpu"), list[mmap.mmap](), list[dict[str, float]]()
    for _ in range(200):
        held.append(mmap.mmap(-1, BLOCK_BYTES))  # pages of its own, not what the process has given back and kept
        held[-1].write(b"x" * BLOCK_BYTES)
        readings.append(meter.read())
    assert readings[-1]["memory_bytes"] > readings[0]["memory_bytes"]
    assert all(each["peak_memory_bytes"] >= each["memory_bytes"] for each in readings)


def test_the_peak_stays_where_memory_was_given_back() -> None:
    meter = MemoryMeter("cpu")
    block = b"x" * (400 * BLOCK_BYTES)
    most = meter.read()["memory_bytes"]
    del block
    after = meter.read()
    assert after["memory_bytes"] < most <= after["peak_memory_bytes"]


def test_a_gpu_is_asked_a_few_times_a_second_and_its_peak_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """To ask costs half a millisecond on an H200: a twentieth of a short step."""
    now, asked = 0.0, count(1)
    monkeypatch.setattr(time, "monotonic", lambda: now)

    def statistics() -> dict[str, dict[str, dict[str, int]]]:
        times = next(asked)
        return {"allocated_bytes": {"all": {"current": 10 * times, "peak": 1000 * times}}}

    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", statistics)
    meter, readings = MemoryMeter("cuda"), list[dict[str, float]]()
    for step in range(100):  # a second of steps of 10 ms
        now = step * 0.01
        readings.append(meter.read())
    assert next(asked) == 5
    assert [readings[step]["peak_memory_bytes"] for step in (0, 24, 25, 99)] == [1000.0, 1000.0, 2000.0, 4000.0]
    assert readings[99]["memory_bytes"] == 40.0
