"""The content of a rank's spool, as the records that are sent: one that cannot be sent is replaced by a note with the reason, alone.

A rank writes into its folder whatever it likes. The place in the file is the number of a record, whatever number the record claims: so
there is never a hole, and the records behind a bad one are sent. The note reaches the coordinator under the number of the record that it
stands for.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from paceline.monitoring.points import MAX_STEP, DataDropped, LogLine, MetricRecord, RankEvent
from paceline.monitoring.spool import HEADER_BYTES, SpoolReader

#: To the end of the year 9998.
MAX_TIME = 253_370_764_800.0
REASON_CHARACTERS = 200
EXAMPLE_BYTES = 100

R = TypeVar("R", MetricRecord, RankEvent, LogLine)

_decoders: dict[type, msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(kind) for kind in (MetricRecord, RankEvent)}


class SpoolItem(NamedTuple, Generic[R]):
    record: R
    end: int  # offset in its file
    size: int  # in the upload
    set_aside: str = ""  # why the record is a note, and not what the rank wrote


def read_items(path: Path, seq: int, offset: int, kind: type[R], refused: Mapping[int, str], most: int) -> list[SpoolItem[R]]:
    """The items behind record `seq`, which ends at byte `offset`; `most` of them at most. `refused`: numbers that the coordinator will not have, and
    why."""
    items: list[SpoolItem[R]] = []
    for payload in islice(SpoolReader(path, offset).read(), most):
        seq, offset = seq + 1, offset + HEADER_BYTES + len(payload)
        items.append(_item(kind, payload, seq, offset, refused.get(seq, "")))
    return items


def _item(kind: type[R], payload: bytes, seq: int, end: int, why: str) -> SpoolItem[R]:
    try:
        record: R = _decoders[kind].decode(payload)
        why = why or _unfit(record)
        if not why:
            renumbered = record.seq != seq
            record = msgspec.structs.replace(record, seq=seq) if renumbered else record
            return SpoolItem(record, end, len(msgspec.json.encode(record)) if renumbered else len(payload))
    except (ValueError, RecursionError) as error:  # malformed, of another schema, no UTF-8, nested too deep
        why = why or str(error)
    note = note_of(kind, seq, why, payload[:EXAMPLE_BYTES])
    return SpoolItem(note, end, len(msgspec.json.encode(note)), why)


def _unfit(record: MetricRecord | RankEvent | LogLine) -> str:
    """Why the coordinator would refuse a record; empty: it would not."""
    if not 0 <= record.time <= MAX_TIME:
        return f"time {record.time:g} is not between 0 and {MAX_TIME:.0f}"
    if isinstance(record, MetricRecord) and not 0 <= record.step <= MAX_STEP:
        return f"step {record.step} is not between 0 and {MAX_STEP}"
    return ""


def note_of(kind: type[R], seq: int, why: str, content: bytes) -> R:
    """The note that takes the place of a record that began with `content`."""
    example = content.decode("utf-8", "replace").replace("\0", "\ufffd")
    return kind(seq=seq, time=time.time(), **_note(kind, why[:REASON_CHARACTERS], example))


def _note(kind: type[MetricRecord] | type[RankEvent] | type[LogLine], why: str, example: str) -> dict[str, Any]:
    if kind is MetricRecord:
        return {"step": 0, "values": {}, "set_aside": f"{why}: {example}"}
    if kind is RankEvent:
        dropped = DataDropped(what="events", count=1, reason=why, example=example)
        return {"kind": "data_dropped", "data": msgspec.to_builtins(dropped)}
    return {"level": "error", "text": f"(a line that could not be sent: {why})"}
