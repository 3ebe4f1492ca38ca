"""Packed readings: what goes in comes out, buckets merge exactly, and a day of a thousand cards stays small."""

from __future__ import annotations

import random

import pytest

from paceline.monitoring import packed
from paceline.monitoring.packed import (
    ReadingBucket,
    SeriesPlace,
    bucket_columns,
    buckets_of,
    coarser,
    columns_of,
    merge,
    pack_buckets,
    pack_record,
    record_columns,
    roll_up,
    unpack_buckets,
    unpack_record,
    values_of,
)
from paceline.monitoring.readings import ReadingRecord

POWER = SeriesPlace("gpu:0", "power_watts")
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
    buckets: dict[SeriesPlace, dict[int, ReadingBucket]] = {}
    roll_up(unpack_record(pack_record(record(10, 30, 20, None, 40, start=START))), 10, buckets)
    number = int(START // 10)
    assert buckets == {POWER: {number: ReadingBucket(4, 1000, 100, 400)}}
    assert unpack_buckets(pack_buckets(buckets)) == buckets


def test_merged_in_any_order_buckets_are_those_of_all_values() -> None:
    chance = random.Random(1)
    records = [record(*(chance.choice([None, chance.uniform(0, 700)]) for _ in range(5)), start=START + 5 * part) for part in range(60)]
    whole: dict[SeriesPlace, dict[int, ReadingBucket]] = {}
    for each in records:
        roll_up(unpack_record(pack_record(each)), 60, whole)
    chance.shuffle(records)
    merged: dict[SeriesPlace, dict[int, ReadingBucket]] = {}
    for each in records:
        part: dict[SeriesPlace, dict[int, ReadingBucket]] = {}
        roll_up(unpack_record(pack_record(each)), 10, part)
        merge(merged, coarser(unpack_buckets(pack_buckets(part)), 6))
    assert merged == whole


def test_series_of_other_times_keep_their_own_buckets() -> None:
    buckets = {POWER: {3: ReadingBucket(1, 5, 5, 5)}, SeriesPlace("host", "cpu_percent"): {4: ReadingBucket(2, 9, 4, 5)}}
    assert unpack_buckets(pack_buckets(buckets)) == buckets


def test_one_metric_is_read_alone_with_its_holes() -> None:
    holed = ReadingRecord(
        seq=1,
        times=[START, START + 1, START + 2],
        columns={
            "gpu:0": {"power_watts": [350.0, None, 360.5]},
            "gpu:1": {"power_watts": [1.0, 2.0, 3.0]},
            "host": {"cpu_percent": [5.0] * 3},
        },
    )
    times, read = record_columns(pack_record(holed), "power_watts", {"gpu:0", "gpu:7"})
    assert (times, read) == ([START, START + 1, START + 2], {"gpu:0": ([1, 0, 1], [3500, 0, 3605])})
    assert record_columns(pack_record(holed), "power_watts", {"gpu:1"})[1] == {"gpu:1": ([1, 1, 1], [10, 20, 30])}
    assert record_columns(pack_record(holed), "load_1m", {"host"})[1] == {}
    buckets = {POWER: {7: ReadingBucket(2, 30, 10, 20)}, SeriesPlace("gpu:1", "power_watts"): {8: ReadingBucket(1, 5, 5, 5)}}
    assert bucket_columns(pack_buckets(buckets), "power_watts", {"gpu:0"}) == ([7, 8], {"gpu:0": ([2, 0], [30, 0])})


def test_columns_that_do_not_fit_their_axis_are_damage() -> None:
    def document(axis: list[int], *columns: list[int]) -> bytes:
        return packed._deflate(packed._Document(1, axis, {"power_watts": {"gpu:0": list(columns)}}))

    for data in (document([1, 1], [5], []), document([1, 1], [5, 1], [1]), document([1, 1], [5, 1], [1, 0])):
        with pytest.raises(ValueError, match="power_watts of gpu:0"):
            record_columns(data, "power_watts", {"gpu:0"})
    for data in (document([1, 1], [2], [5], [5], [5]), document([1, 1], [2, 0], [5], [5], [5])):
        with pytest.raises(ValueError, match="power_watts of gpu:0"):
            bucket_columns(data, "power_watts", {"gpu:0"})


def test_damage_is_told() -> None:
    for read in (record_columns, bucket_columns):
        with pytest.raises(ValueError, match="damaged"):
            read(b"no readings", "power_watts", {"gpu:0"})
    with pytest.raises(ValueError, match="damaged"):
        unpack_buckets(pack_buckets({})[:-3] + b"???")
    with pytest.raises(ValueError, match="damaged"):
        list(unpack_record(b"no readings"))
    assert (values_of(b"no readings"), buckets_of(b"no readings")) == (None, None)


def test_a_stored_metric_of_a_later_version_is_left_out_of_the_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pack_record(record(350.0))
    monkeypatch.setattr(packed, "metrics_of", lambda _: {})
    assert columns_of(data) == ([START], {})
