"""Decides which records of an upload can be stored, each by itself, so that a bad one is passed over alone.

Reports of ranks are untrusted input. A record that cannot be read becomes `Unreadable` in its place; one that can be read and not stored
has a `refusal`. Both keep their number, so the rank's stream goes on behind them and the agent forgets them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from paceline.api.errors import ProblemError
from paceline.monitoring.points import MAX_NAME_CHARACTERS, MAX_STEP, LogLine, MetricRecord, RankBatch, RankEvent, Upload
from paceline.monitoring.readings import NodeReadings

#: Seconds since the epoch, to the end of the year 9998: what every calendar in use here can show.
MAX_TIME = 253_370_764_800.0
MAX_RECORDS = 5_000  # of one upload
MAX_VALUES = 1_000  # of one record
MAX_LINE_CHARACTERS = 64 << 10
MAX_EVENT_BYTES = 256 << 10
#: The longest text that says what was refused.
SHOWN_CHARACTERS = 200

T = TypeVar("T", MetricRecord, LogLine, RankEvent)


class Unreadable(msgspec.Struct, frozen=True):
    """The placeholder of a record that does not fit its schema."""

    seq: int
    why: str


class _RawBatch(msgspec.Struct, frozen=True):
    """A batch of which only the place has been read."""

    job_id: str
    generation: int
    rank: int
    metrics: list[msgspec.Raw] = []
    logs: list[msgspec.Raw] = []
    events: list[msgspec.Raw] = []
    metrics_gone: int = 0
    events_gone: int = 0


class _RawUpload(msgspec.Struct, frozen=True):
    batches: list[_RawBatch]
    readings: NodeReadings | None = None


class _Numbered(msgspec.Struct, frozen=True):
    seq: int


_upload = msgspec.json.Decoder(Upload)
_raw_upload = msgspec.json.Decoder(_RawUpload)
_numbered = msgspec.json.Decoder(_Numbered)
_record = msgspec.json.Decoder(MetricRecord)
_line = msgspec.json.Decoder(LogLine)
_event = msgspec.json.Decoder(RankEvent)


async def read_upload(body: bytes) -> Upload:
    """The upload, with an `Unreadable` in the place of each record that does not fit. Raises msgspec.DecodeError where the body is
    no JSON, msgspec.ValidationError where it does not name the rank of its records, or its readings do not fit, and ProblemError
    `too_many_records`."""
    try:
        upload = _upload.decode(body)
    except msgspec.ValidationError:
        return await asyncio.to_thread(_read_each_by_itself, body)
    check_limits(upload.batches)
    return upload


def _read_each_by_itself(body: bytes) -> Upload:
    """Read each record by itself: for one that does not fit that takes microseconds, so they are counted first."""
    upload = _raw_upload.decode(body)
    check_limits(upload.batches)
    return Upload(batches=[_read_batch(raw) for raw in upload.batches], readings=upload.readings)


def check_limits(batches: Sequence[RankBatch | _RawBatch]) -> None:
    """Raise ProblemError where an upload has more batches or records than one may have."""
    count = sum(map(size_of, batches))
    if count > MAX_RECORDS or len(batches) > MAX_RECORDS:
        raise ProblemError(
            "too_many_records",
            f"{count} records in {len(batches)} batches; the limit is {MAX_RECORDS} of each: send them in several uploads",
        )


def size_of(batch: RankBatch | _RawBatch) -> int:
    return len(batch.metrics) + len(batch.logs) + len(batch.events)


def _read_batch(raw: _RawBatch) -> RankBatch:
    return RankBatch(
        job_id=raw.job_id,
        generation=raw.generation,
        rank=raw.rank,
        metrics=_read_each(raw.metrics, _record),
        logs=_read_each(raw.logs, _line),
        events=_read_each(raw.events, _event),
        metrics_gone=raw.metrics_gone,
        events_gone=raw.events_gone,
    )


def _read_each(raws: Sequence[msgspec.Raw], decoder: msgspec.json.Decoder[T]) -> list[T]:
    """Read each record. One whose number cannot be read follows the one before it."""
    found: list[Any] = []
    for raw in raws:
        try:
            found.append(decoder.decode(raw))
        except msgspec.DecodeError as error:
            before = found[-1].seq if found else 0
            found.append(Unreadable(_number(raw, before + 1), str(error)[:SHOWN_CHARACTERS]))
    return found


def _number(raw: msgspec.Raw, otherwise: int) -> int:
    try:
        return _numbered.decode(raw).seq
    except msgspec.DecodeError:
        return otherwise


def refusal(item: object) -> str | None:
    """Why this record, line or event cannot be stored, with the value and the limit; None: it can."""
    match item:
        case Unreadable(why=why):
            return why
        case MetricRecord():
            return _refusal_of_record(item)
        case LogLine():
            return _refusal_of_time(item.time) or _too_long("a line", item.text, MAX_LINE_CHARACTERS)
        case RankEvent():
            size = len(msgspec.json.encode(item.data))
            return f"an event of {size} bytes; the limit is {MAX_EVENT_BYTES}" if size > MAX_EVENT_BYTES else None
    return f"a {type(item).__name__} is no record"


def _refusal_of_record(record: MetricRecord) -> str | None:
    if record.set_aside:
        return record.set_aside[:SHOWN_CHARACTERS]
    if not 0 <= record.step <= MAX_STEP:
        return f"step {record.step} is not between 0 and {MAX_STEP}"
    if not 0 <= record.time <= MAX_TIME:
        return _refusal_of_time(record.time)
    if len(record.values) > MAX_VALUES:
        return f"{len(record.values)} values in one record; the limit is {MAX_VALUES}"
    for name in record.values:
        if len(name) > MAX_NAME_CHARACTERS:
            return _too_long("a metric's name", name, MAX_NAME_CHARACTERS)
    return None


def _refusal_of_time(time: float) -> str | None:
    return None if 0 <= time <= MAX_TIME else f"time {time:g} is not between 0 and {MAX_TIME:.0f} seconds since 1970"


def _too_long(what: str, text: str, limit: int) -> str | None:
    return f"{what} of {len(text)} characters ({text[:20]!r}...); the limit is {limit}" if len(text) > limit else None


def without_nul(value: Any) -> Any:
    """A JSON document that PostgreSQL can hold: NUL in a text becomes the replacement character."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd")
    if isinstance(value, dict):
        return {without_nul(name): without_nul(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_nul(each) for each in value]
    return value
