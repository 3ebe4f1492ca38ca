"""Memory of a rank's process: the peak is never below what is held now, and never falls."""

from __future__ import annotations

import mmap

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
