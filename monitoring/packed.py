"""Readings as they are stored: one compressed document for many values of a node, instead of a row for each.

Values are whole multiples of their metric's `step`. A column holds the differences between neighbours, which are small, in MessagePack, and
the document is deflated. Roll-ups hold count, sum, minimum and maximum for each bucket of time, so that they merge exactly.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import sub
from typing import NamedTuple

import msgspec

from paceline.monitoring.readings import ReadingRecord, metrics_of

_TIME_STEP = 0.01
_LEVEL = 6  # of deflate
_MAX_BYTES = 64 << 20  # of a document, unpacked


class SeriesPlace(NamedTuple):
    """The place of a series of readings: a subject, and a metric of it."""

    subject: str
    name: str


@dataclass(slots=True)
class ReadingBucket:
    """The readings of one series within a bucket, in steps: an accumulator."""

    count: int
    sum: int
    minimum: int
    maximum: int

    def add(self, value: int) -> None:
        self.count += 1
        self.sum += value
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)

    def merge(self, other: ReadingBucket) -> None:
        self.count += other.count
        self.sum += other.sum
        self.minimum = min(self.minimum, other.minimum)
        self.maximum = max(self.maximum, other.maximum)

    @classmethod
    def of(cls, value: int) -> ReadingBucket:
        return cls(1, value, value, value)


#: By place and by the number of a bucket: time // its seconds.
Buckets = dict[SeriesPlace, dict[int, ReadingBucket]]
#: By subject the counts and the sums of one metric, each along the same axis.
SeriesColumns = dict[str, tuple[list[int], list[int]]]


class _Document(msgspec.Struct, array_like=True):
    """`axis`: times or numbers of buckets; `columns`: by metric, then by subject."""

    version: int
    axis: list[int]
    columns: dict[str, dict[str, list[list[int]]]]


class _PackedColumns(msgspec.Struct, array_like=True):
    """A document whose columns are read when their metric is asked for."""

    version: int
    axis: list[int]
    columns: dict[str, msgspec.Raw]


_decode_axis = msgspec.msgpack.Decoder(_PackedColumns)
_decode_columns = msgspec.msgpack.Decoder(dict[str, list[list[int]]])
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(_Document).decode


def pack_record(record: ReadingRecord) -> bytes:
    """Pack the readings of a record; its `seq` is not kept. Metrics that are not in the list are left out."""
    axis = [round(time / _TIME_STEP) for time in record.times]
    columns: dict[str, dict[str, list[list[int]]]] = {}
    for subject, metrics in record.columns.items():
        known = metrics_of(subject)
        for name, column in metrics.items():
            if name in known:
                step = known[name].step
                present = [round(value / step) for value in column if value is not None]
                mask = [] if len(present) == len(column) else [int(value is not None) for value in column]
                columns.setdefault(name, {})[subject] = [_differences(present), mask]
    return _deflate(_Document(1, _differences(axis), columns))


def unpack_record(data: bytes, wanted: Callable[[SeriesPlace], bool] | None = None) -> Iterator[tuple[float, SeriesPlace, int]]:
    """Each value of a packed record as (time, place, value in steps); only those of `wanted` places, if given."""
    document = _inflate(data)
    times = [value * _TIME_STEP for value in accumulate(document.axis)]
    for name, subjects in document.columns.items():
        for subject, (differences, mask) in subjects.items():
            place = SeriesPlace(subject, name)
            if wanted is not None and not wanted(place):
                continue
            present = [time for time, there in zip(times, mask, strict=True) if there] if mask else times
            for time, value in zip(present, accumulate(differences), strict=True):
                yield time, place, value


def record_columns(data: bytes, name: str, subjects: Container[str]) -> tuple[list[float], SeriesColumns]:
    """The times of a packed record, and for each of these subjects whether a metric was read at each time, 1 or 0, and its value in steps. Nothing else of the
    record is read. Raises ValueError where it is damaged."""
    axis, columns = _columns_of_metric(data, name)
    ones, found = [1] * len(axis), SeriesColumns()
    for subject, (differences, mask) in columns.items():
        if subject in subjects:
            if len(differences) != (sum(mask) if mask else len(axis)) or len(mask) not in (0, len(axis)):
                raise ValueError(f"{name} of {subject} has {len(differences)} values at {len(axis)} times")
            found[subject] = (mask, _spread(differences, mask)) if mask else (ones, list(accumulate(differences)))
    return [value * _TIME_STEP for value in axis], found


def bucket_columns(data: bytes, name: str, subjects: Container[str]) -> tuple[list[int], SeriesColumns]:
    """The numbers of the buckets of a packed row, and for each of these subjects the count and the sum of a metric in each bucket. Nothing else of the row is
    read. Raises ValueError where it is damaged."""
    axis, columns = _columns_of_metric(data, name)
    found = SeriesColumns()
    for subject, (differences, sums, _, _) in columns.items():
        if subject in subjects:
            counts = list(accumulate(differences))
            if len(counts) != len(axis) or len(sums) != len(counts) - counts.count(0):
                raise ValueError(f"{name} of {subject} has {len(sums)} sums of {len(counts)} counts in {len(axis)} buckets")
            found[subject] = (counts, _spread(sums, counts))
    return axis, found


def _spread(differences: Sequence[int], there: Sequence[int]) -> list[int]:
    """A column's values at the places that have one; 0 at others."""
    values = accumulate(differences)
    return [next(values) if each else 0 for each in there]


def values_of(data: bytes, wanted: Callable[[SeriesPlace], bool] | None = None) -> list[tuple[float, SeriesPlace, int]] | None:
    """The values of a packed record, as `unpack_record` yields them; None where it cannot be read as a whole."""
    try:
        return list(unpack_record(data, wanted))
    except ValueError:
        return None


def columns_of(data: bytes) -> tuple[list[float], dict[str, dict[str, list[float | None]]]]:
    """The times of a packed record, and by subject and metric one value for each of them, in the metric's unit; None: not read. Metrics that are not in
    the list are left out. Raises ValueError where the record is damaged."""
    document = _inflate(data)
    times = [round(value * _TIME_STEP, 2) for value in accumulate(document.axis)]
    columns: dict[str, dict[str, list[float | None]]] = {}
    for name, subjects in document.columns.items():
        for subject, (differences, mask) in subjects.items():
            metric = metrics_of(subject).get(name)
            if metric is None:
                continue
            values = (round(value * metric.step, 3) for value in accumulate(differences))
            columns.setdefault(subject, {})[name] = [next(values) if there else None for there in mask or [1] * len(times)]
    return times, columns


def pack_buckets(buckets: Buckets) -> bytes:
    numbers = sorted({number for series in buckets.values() for number in series})
    columns: dict[str, dict[str, list[list[int]]]] = {}
    for place, series in buckets.items():
        counts = [series[number].count if number in series else 0 for number in numbers]
        found = [series[number] for number in numbers if number in series]
        columns.setdefault(place.name, {})[place.subject] = [
            _differences(counts),
            _differences([each.sum for each in found]),
            _differences([each.minimum for each in found]),
            _differences([each.maximum for each in found]),
        ]
    return _deflate(_Document(1, _differences(numbers), columns))


def unpack_buckets(data: bytes, wanted: Callable[[SeriesPlace], bool] | None = None) -> Buckets:
    """The buckets of a packed row; only those of `wanted` places, if given."""
    document = _inflate(data)
    numbers = list(accumulate(document.axis))
    buckets: Buckets = {}
    for name, subjects in document.columns.items():
        for subject, (counts, sums, minima, maxima) in subjects.items():
            place = SeriesPlace(subject, name)
            if wanted is not None and not wanted(place):
                continue
            present = [(number, count) for number, count in zip(numbers, accumulate(counts), strict=True) if count]
            values = zip(present, accumulate(sums), accumulate(minima), accumulate(maxima), strict=True)
            buckets[place] = {number: ReadingBucket(count, *rest) for (number, count), *rest in values}
    return buckets


def buckets_of(data: bytes, wanted: Callable[[SeriesPlace], bool] | None = None) -> Buckets | None:
    """The buckets of a packed row, as `unpack_buckets` returns them; None where it cannot be read as a whole."""
    try:
        return unpack_buckets(data, wanted)
    except ValueError:
        return None


def roll_up(values: Iterable[tuple[float, SeriesPlace, int]], seconds: int, buckets: Buckets) -> None:
    """Add values to buckets of so many seconds."""
    for time, place, value in values:
        add(buckets, place, int(time // seconds), value)


def add(buckets: Buckets, place: SeriesPlace, number: int, value: int) -> None:
    """Add one value to a bucket."""
    series = buckets.setdefault(place, {})
    known = series.get(number)
    if known is None:
        series[number] = ReadingBucket.of(value)
    else:
        known.add(value)


def coarser(buckets: Mapping[SeriesPlace, Mapping[int, ReadingBucket]], factor: int) -> Buckets:
    """Merge the readings into buckets that are so many times as long."""
    found: Buckets = {}
    for place, series in buckets.items():
        for number, readings in series.items():
            merge_one(found, place, number // factor, readings)
    return found


def merge(into: Buckets, other: Mapping[SeriesPlace, Mapping[int, ReadingBucket]]) -> None:
    """Add the readings of other buckets of the same length."""
    for place, series in other.items():
        for number, readings in series.items():
            merge_one(into, place, number, readings)


def merge_one(into: Buckets, place: SeriesPlace, number: int, readings: ReadingBucket) -> None:
    """Add the readings of one bucket."""
    series = into.setdefault(place, {})
    known = series.get(number)
    if known is None:
        series[number] = ReadingBucket(readings.count, readings.sum, readings.minimum, readings.maximum)
    else:
        known.merge(readings)


def _differences(values: Sequence[int]) -> list[int]:
    return [*values[:1], *map(sub, values[1:], values)]


def _deflate(document: _Document) -> bytes:
    return zlib.compress(_encode(document), _LEVEL)


def _columns_of_metric(data: bytes, name: str) -> tuple[list[int], dict[str, list[list[int]]]]:
    """The axis of a document, and the columns of one metric by subject. Raises ValueError where they are damaged."""
    try:
        document = _decode_axis.decode(zlib.decompressobj().decompress(data, _MAX_BYTES))
        packed = document.columns.get(name)
        return list(accumulate(document.axis)), {} if packed is None else _decode_columns.decode(packed)
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"packed readings are damaged: {error}") from error


def _inflate(data: bytes) -> _Document:
    """The document. Raises ValueError where it is damaged."""
    inflater = zlib.decompressobj()
    try:
        return _decode(inflater.decompress(data, _MAX_BYTES))
    except (zlib.error, msgspec.DecodeError) as error:
        raise ValueError(f"packed readings are damaged: {error}") from error
