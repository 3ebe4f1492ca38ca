"""The roll-up plan: which level answers a question, and what a day of a thousand cards takes."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from paceline.cluster.history.node_readings import (
    READING_LEVELS,
    READING_ROW_BYTES,
    ROW_BUCKETS,
    KeepReadings,
    Resolution,
    resolution,
    row_seconds,
)
from paceline.monitoring.packed import Buckets, coarser, pack_buckets, pack_record, roll_up, unpack_record
from paceline.monitoring.readings import ReadingRecord

NOW = 1_795_000_000.0
HOUR, DAY = 3_600, 86_400
KEEP = KeepReadings(raw=timedelta(hours=3), fine=timedelta(days=3), coarse=timedelta(days=365))
CARDS, NODES = 8, 125
RECORD_SECONDS = 5
MEASURED_SECONDS = 1_200
LIMIT_BYTES = 2e9

Columns = dict[str, list[float | None]]


@pytest.mark.parametrize(
    ("ago", "span", "most", "expected"),
    [
        (600, 600, 2_000, Resolution(1, 1)),
        (HOUR, HOUR, 361, Resolution(10, 10)),
        (DAY, DAY, 2_000, Resolution(60, 60)),
        (2 * DAY, 600, 2_000, Resolution(10, 10)),  # seconds are gone by then
        (20 * DAY, HOUR, 2_000, Resolution(60, 60)),
        (100 * DAY, HOUR, 2_000, Resolution(600, 600)),
        (30 * DAY, 30 * DAY, 100, Resolution(600, 600 * 44)),
        (900 * DAY, 900 * DAY, 2_000, Resolution(600, 600 * 65)),
        (60, 0, 2, Resolution(1, 1)),
    ],
)
def test_the_finest_level_that_is_kept_and_fits(ago: float, span: float, most: int, expected: Resolution) -> None:
    assert resolution(NOW - ago, NOW - ago + span, most, NOW, KEEP) == expected


@pytest.mark.parametrize("most", [2, 3, 7, 100, 2_000])
@pytest.mark.parametrize("span", [0.0, 59.0, 3_599.9, 86_400.0, 3e7])
def test_there_are_never_more_buckets_than_asked_for(most: int, span: float) -> None:
    for offset in (0.0, 0.3, 599.0):
        first = NOW - span + offset
        seconds = resolution(first, first + span, most, NOW, KEEP).seconds
        assert (first + span) // seconds - first // seconds + 1 <= most


def test_a_day_of_a_thousand_cards_takes_less_than_two_gigabytes() -> None:
    chance = random.Random(7)
    records = [busy_record(chance, NOW + RECORD_SECONDS * number) for number in range(MEASURED_SECONDS // RECORD_SECONDS)]
    packed = [pack_record(record) for record in records]
    finest: Buckets = {}
    for each in packed:
        roll_up(unpack_record(each), READING_LEVELS[0], finest)
    bytes_of = {1: NODES * KEEP.raw.total_seconds() / MEASURED_SECONDS * sum(READING_ROW_BYTES + len(each) for each in packed)}
    for level in READING_LEVELS[:2]:
        buckets = coarser(finest, level // READING_LEVELS[0])
        mean_row = READING_ROW_BYTES * MEASURED_SECONDS / row_seconds(level) + sum(map(len, rows_of(buckets)))
        bytes_of[level] = NODES * DAY / MEASURED_SECONDS * mean_row
    bytes_of[600] = bytes_of[60] / 10
    table = ", ".join(f"{seconds} s: {size / 1e9:.2f} GB" for seconds, size in bytes_of.items())
    assert sum(bytes_of.values()) < LIMIT_BYTES, table


def rows_of(buckets: Buckets) -> list[bytes]:
    """The documents of the rows that these buckets lie in."""
    rows: dict[int, Buckets] = {}
    for place, series in buckets.items():
        for number, bucket in series.items():
            rows.setdefault(number // ROW_BUCKETS, {}).setdefault(place, {})[number] = bucket
    return [pack_buckets(row) for row in rows.values()]


def busy_record(chance: random.Random, start: float) -> ReadingRecord:
    """A node that trains: everything that moves on a card moves in each second."""

    def column(mean: float, noise: float) -> list[float | None]:
        return [max(0.0, chance.gauss(mean, noise)) for _ in range(RECORD_SECONDS)]

    def cards() -> dict[str, list[float | None]]:
        return {
            "utilization_percent": [float(round(chance.uniform(85, 100))) for _ in range(RECORD_SECONDS)],
            "memory_used_bytes": [70e9] * RECORD_SECONDS,
            "temperature_celsius": column(65, 1),
            "power_watts": column(640, 25),
            "sm_clock_mhz": column(1_700, 80),
            "memory_clock_mhz": [2_619.0] * RECORD_SECONDS,
            "throttled_by_power": [float(chance.random() < 0.2) for _ in range(RECORD_SECONDS)],
            "throttled_by_heat": [0.0] * RECORD_SECONDS,
            "throttled_otherwise": [0.0] * RECORD_SECONDS,
            "ecc_corrected": [0.0] * RECORD_SECONDS,
            "ecc_uncorrected": [0.0] * RECORD_SECONDS,
            "pcie_sent_bytes_per_second": column(2e9, 4e8),
            "pcie_received_bytes_per_second": column(5e9, 8e8),
            "nvlink_sent_bytes_per_second": column(9e10, 2e10),
            "nvlink_received_bytes_per_second": column(9e10, 2e10),
        }

    host: Columns = {
        "cpu_percent": column(30, 5),
        "memory_used_bytes": column(3e11, 1e8),
        "load_1m": column(20, 0.2),
        "disk_used_bytes": [1e12] * RECORD_SECONDS,
        "disk_read_bytes_per_second": column(2e8, 1e8),
        "disk_written_bytes_per_second": column(5e7, 4e7),
    }
    network: Columns = {"sent_bytes_per_second": column(1e9, 2e8), "received_bytes_per_second": column(1e9, 2e8)}
    columns = {"host": host, "net:eth0": network, "net:ib0": network} | {f"gpu:{index}": cards() for index in range(CARDS)}
    return ReadingRecord(seq=1, times=[start + second for second in range(RECORD_SECONDS)], columns=columns)
