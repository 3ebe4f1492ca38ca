"""Reads the scalars in TensorBoard's event files, without TensorBoard, a piece at a time. Pure: bytes go in.

The frames are those of `monitoring/tensorboard.py`. A scalar is a `Summary.Value` with a `simple_value` (torch, tensorboardX) or with a
tensor of one number (TensorFlow 2): `tensorboard/compat/proto/{event,summary,tensor}.proto`. Everything else is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from paceline.monitoring.tensorboard import masked_checksum

#: length, checksum of the length
HEAD = struct.Struct("<Q4s")
CHECKSUM_BYTES = 4
#: A larger record is an image, a histogram, a graph: it is passed over without being read.
MAX_PAYLOAD_BYTES = 256 << 10
_DOUBLE, _FLOAT = struct.Struct("<d"), struct.Struct("<f")
_VARINT, _EIGHT, _DELIMITED, _FOUR = 0, 1, 2, 5
#: Fields of `Event`, `Summary`, `Summary.Value`, `SummaryMetadata`, `TensorProto`.
_EVENT_TIME, _EVENT_STEP, _EVENT_SUMMARY = 1, 2, 5
_SUMMARY_VALUE = 1
_VALUE_TAG, _VALUE_SIMPLE, _VALUE_TENSOR, _VALUE_METADATA = 1, 2, 8, 9
_TENSOR_TYPE, _TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES = 1, 4, 5, 6
_METADATA_PLUGIN, _PLUGIN_NAME = 1, 1
_NUMBERS = {1: _FLOAT, 2: _DOUBLE}  # DT_FLOAT, DT_DOUBLE
_SCALARS_PLUGIN = b"scalars"
_LARGEST_SIGNED = (1 << 63) - 1

Value = int | bytes | memoryview


class DamagedEventError(ValueError):
    """A record of an event file cannot be decoded."""


class Scalars(NamedTuple):
    """The scalars of one event, by tag."""

    step: int
    time: float
    values: list[tuple[str, float]]


class PayloadSplitter:
    """Splits a growing file into payloads. `offset` is where the next unread record begins."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        self.passed_over = 0  # records that were too large, or whose content is damaged

    def take(self, content: bytes) -> Iterator[bytes]:
        """`content` lies at `offset`. The payloads that are whole; what is not yet whole waits. Raises DamagedEventError where no record begins."""
        position = 0
        while len(content) - position >= HEAD.size:
            length, checksum = HEAD.unpack_from(content, position)
            if masked_checksum(content[position : position + 8]) != checksum:
                raise DamagedEventError(f"no record begins at byte {self.offset}")
            size = HEAD.size + length + CHECKSUM_BYTES
            if length > MAX_PAYLOAD_BYTES:
                self.passed_over += 1
                self.offset += size  # which may be far beyond `content`
                return
            payload = content[position + HEAD.size : position + HEAD.size + length]
            if len(content) - position < size:
                return
            self.offset, position = self.offset + size, position + size
            if masked_checksum(payload) == content[position - CHECKSUM_BYTES : position]:
                yield payload
            else:
                self.passed_over += 1


def scalars_of(payload: bytes) -> Scalars | None:
    """Decode the scalars of one serialized TensorBoard `Event`; None if it has none. Raises DamagedEventError for bytes that are no
    `Event`."""
    step, time, values = 0, 0.0, []
    for field, value in _fields(memoryview(payload)):
        if field == _EVENT_TIME and isinstance(value, bytes):
            (time,) = _DOUBLE.unpack(value) if len(value) == _DOUBLE.size else (0.0,)
        elif field == _EVENT_STEP and isinstance(value, int):
            step = value if value <= _LARGEST_SIGNED else value - (1 << 64)
        elif field == _EVENT_SUMMARY and isinstance(value, memoryview):
            values += [found for inner, each in _fields(value) if inner == _SUMMARY_VALUE and (found := _scalar(each)) is not None]
    return Scalars(step, time, values) if values else None


def _scalar(message: Value) -> tuple[str, float] | None:
    if not isinstance(message, memoryview):
        return None
    tag, number, tensor, plugin = "", None, None, b""
    for field, value in _fields(message):
        if field == _VALUE_TAG and isinstance(value, memoryview):
            tag = bytes(value).decode("utf-8", "replace")
        elif field == _VALUE_SIMPLE and isinstance(value, bytes) and len(value) == _FLOAT.size:
            (number,) = _FLOAT.unpack(value)
        elif field == _VALUE_TENSOR and isinstance(value, memoryview):
            tensor = value
        elif field == _VALUE_METADATA and isinstance(value, memoryview):
            plugin = _plugin(value)
    if number is None and tensor is not None and plugin == _SCALARS_PLUGIN:
        number = _number(tensor)
    return None if number is None or not tag else (tag, number)


def _plugin(metadata: memoryview) -> bytes:
    for field, value in _fields(metadata):
        if field == _METADATA_PLUGIN and isinstance(value, memoryview):
            return next((bytes(name) for inner, name in _fields(value) if inner == _PLUGIN_NAME and isinstance(name, memoryview)), b"")
    return b""


def _number(tensor: memoryview) -> float | None:
    """Return the number in a tensor of one element."""
    kind, content = _NUMBERS[1], b""
    for field, value in _fields(tensor):
        if field == _TENSOR_TYPE and isinstance(value, int) and value in _NUMBERS:
            kind = _NUMBERS[value]
        elif field in (_TENSOR_CONTENT, _TENSOR_FLOATS, _TENSOR_DOUBLES) and not isinstance(value, int):
            content = bytes(value)
    if len(content) != kind.size:
        return None
    (number,) = kind.unpack(content)
    return float(number)


def _fields(message: memoryview) -> Iterator[tuple[int, Value]]:
    """(number, value) of a protocol buffer's fields: an int, bytes of a fixed size, or a part of `message`."""
    position, end = 0, len(message)
    while position < end:
        key, position = _varint(message, position)
        kind = key & 7
        if kind == _VARINT:
            number, position = _varint(message, position)
            yield key >> 3, number
            continue
        length = {_EIGHT: 8, _FOUR: 4}.get(kind, -1)
        if kind == _DELIMITED:
            length, position = _varint(message, position)
        if length < 0 or position + length > end:
            raise DamagedEventError("a field of an event is no protocol buffer")
        part = message[position : position + length]
        yield key >> 3, part if kind == _DELIMITED else bytes(part)
        position += length


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, and where the next thing begins."""
    number = 0
    for shift in range(0, 70, 7):
        if position >= len(message):
            break
        byte = message[position]
        number, position = number | (byte & 0x7F) << shift, position + 1
        if byte < 0x80:
            return number & (1 << 64) - 1, position
    raise DamagedEventError("a number in an event has no end")
