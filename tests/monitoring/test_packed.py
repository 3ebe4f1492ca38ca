"""Packed readings: what goes in comes out, buckets merge exactly, and a day of a thousand cards stays small."""

from __future__ import annotations

import random

import pytest

from paceline.monitoring import packed
from paceline.monitoring.packed import (
    Place,
    ReadingBucket,
    buckets_of,
    coarser,
    columns_of,
    merge,
    pack_buckets,
    pack_record,
    roll_up,
    unpack_buckets,
    unpack_record,
    values_of,
)
from paceline.monitoring.readings import ReadingRecord

POWER = Place("gpu:0", "power_watts")
START = 1_795_000_000.0


def record(*values: float | None, start: float = START) -> ReadingRecord:
    times = [start + second for second in range(len(values))]
    return ReadingRecord(seq=1, times=times, columns={POWER.subject: {POWER.name: list(values)}})


def test_values_come_back_in_steps_and_holes_stay_holes() -> None:
    found = list(unpack_record(pack_record(record(350.04, None, 20.0))))
    assert found == [(pytest.approx(START), POWER, 3500), (pytest.approx(START + 2), POWER, 200)]


def test_columns_come_back_in_their_units_with_their_holes() -> None:
    assert columns_of(pack_record(record(350.04, None, 20.0))) == (
        [START, START + 1, START + 2],
        {"gpu:0": {"power_watts": [350.0, None, 20.0]}},
    )


def test_a_metric_that_is_not_listed_is_left_out() -> None:
    unknown = ReadingRecord(seq=1, times=[START], columns={"gpu:0": {"colour": [1.0]}, "fan:0": {"speed": [1.0]}})
    assert list(unpack_record(pack_record(unknown))) == []


def test_buckets_hold_count_sum_and_extremes_and_come_back() -> None:
    buckets: dict[Place, dict[int, ReadingBucket]] = {}
    roll_up(unpack_record(pack_record(record(10, 30, 20, None, 40, start=START))), 10, buckets)
    number = int(START // 10)
    assert buckets == {POWER: {number: ReadingBucket(4, 1000, 100, 400)}}
    assert unpack_buckets(pack_buckets(buckets)) == buckets


def test_merged_in_any_order_buckets_are_those_of_all_values() -> None:
    chance = random.Random(1)
    records = [record(*(chance.choice([None, chance.uniform(0, 700)]) for _ in range(5)), start=START + 5 * part) for part in range(60)]
    whole: dict[Place, dict[int, ReadingBucket]] = {}
    for each in records:
        roll_up(unpack_record(pack_record(each)), 60, whole)
    chance.shuffle(records)
    merged: dict[Place, dict[int, ReadingBucket]] = {}
    for each in records:
        part: dict[Place, dict[int, ReadingBucket]] = {}
        roll_up(unpack_record(pack_record(each)), 10, part)
        merge(merged, coarser(unpack_buckets(pack_buckets(part)), 6))
    assert merged == whole


def test_series_of_other_times_keep_their_own_buckets() -> None:
    buckets = {POWER: {3: ReadingBucket(1, 5, 5, 5)}, Place("host", "cpu_percent"): {4: ReadingBucket(2, 9, 4, 5)}}
    assert unpack_buckets(pack_buckets(buckets)) == buckets


def test_damage_is_told() -> None:
    with pytest.raises(ValueError, match="damaged"):
        unpack_buckets(pack_buckets({})[:-3] + b"???")
    with pytest.raises(ValueError, match="damaged"):
        list(unpack_record(b"no readings"))
    assert (values_of(b"no readings"), buckets_of(b"no readings")) == (None, None)


def test_a_stored_metric_of_a_later_version_is_left_out_of_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack_record(record(350.0))
    monkeypatch.setattr(packed, "metrics_of", lambda _: {})
    assert columns_of(data) == ([START], {})
