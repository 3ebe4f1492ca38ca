"""TensorBoard event files: scalars, images and histograms in the form that TensorBoard reads, written without it.

A file is a row of records: `length (8 bytes) | masked crc32c of the length | payload | masked crc32c of the payload`, little-endian
(`tensorflow/core/lib/io/record_writer.h`). A payload is an `Event` protocol buffer (`tensorflow/core/util/event.proto`); all scalars
of one step share one. Pure: bytes come out, and where they go is the caller's matter.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence

#: The first record of every event file says which format follows.
FILE_VERSION = b"brain.Event:2"
_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")
_DOUBLE = struct.Struct("<d")
_FLOAT = struct.Struct("<f")
#: CRC-32C, Castagnoli's polynomial, bits reversed (RFC 3720, appendix B.4).
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_WORD = (1 << 32) - 1
#: The range of protobuf's `float`; beyond it a scalar is infinite.
_LARGEST_FLOAT = 3.4028234663852886e38

#: Protocol buffer keys: field number << 3 | wire type (0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes).
_EVENT_TIME, _EVENT_STEP, _EVENT_VERSION, _EVENT_SUMMARY = b"\x09", b"\x10", b"\x1a", b"\x2a"
_SUMMARY_VALUE = b"\x0a"
_VALUE_TAG, _VALUE_FLOAT, _VALUE_IMAGE, _VALUE_HISTOGRAM = b"\x0a", b"\x15", b"\x22", b"\x2a"
#: Fields of `Summary.Image` and of `HistogramProto` (`tensorflow/core/framework/summary.proto`, `tsl/protobuf/histogram.proto`).
_IMAGE_HEIGHT, _IMAGE_WIDTH, _IMAGE_COLOURS, _IMAGE_FILE = b"\x08", b"\x10", b"\x18", b"\x22"
_HISTOGRAM_LEAST, _HISTOGRAM_MOST, _HISTOGRAM_NUMBER, _HISTOGRAM_SUM, _HISTOGRAM_SQUARES = b"\x09", b"\x11", b"\x19", b"\x21", b"\x29"
_HISTOGRAM_LIMITS, _HISTOGRAM_COUNTS = b"\x32", b"\x3a"
_RGB = 3


def file_name(time: float, writer: str) -> str:
    """TensorBoard finds a file by `tfevents` in its name, and reads those of one folder in the order of their names."""
    return f"events.out.tfevents.{int(time):010d}.{writer}"


def header(time: float) -> bytes:
    """The start of a file; `time` in seconds since the epoch."""
    return record(_EVENT_TIME + _DOUBLE.pack(time) + _delimited(_EVENT_VERSION, FILE_VERSION))


def scalars(step: int, time: float, values: Mapping[str, float]) -> bytes:
    """Return one step's scalars by tag. NaN and the infinities are kept: TensorBoard marks them."""
    return event(step, time, [_scalar(tag, value) for tag, value in values.items()])


def event(step: int, time: float, values: Iterable[bytes]) -> bytes:
    """Return the record of one step, of values as `image` and `histogram` make them."""
    summary = b"".join(values)
    return record(_EVENT_TIME + _DOUBLE.pack(time) + _EVENT_STEP + varint(step) + _delimited(_EVENT_SUMMARY, summary))


def _scalar(tag: str, value: float) -> bytes:
    return _delimited(_SUMMARY_VALUE, _tag(tag) + _VALUE_FLOAT + _FLOAT.pack(single_precision(value)))


def image(tag: str, width: int, height: int, file: bytes) -> bytes:
    """Return a value that is a PNG or JPEG file."""
    size = _IMAGE_HEIGHT + varint(height) + _IMAGE_WIDTH + varint(width) + _IMAGE_COLOURS + varint(_RGB)
    return _delimited(_SUMMARY_VALUE, _tag(tag) + _delimited(_VALUE_IMAGE, size + _delimited(_IMAGE_FILE, file)))


def histogram(tag: str, edges: Sequence[float], counts: Sequence[int], mean: float, std: float) -> bytes:
    """Return a value that is a histogram; `edges` are one more than `counts`."""
    number = float(sum(counts))
    facts = (
        (_HISTOGRAM_LEAST, edges[0]),
        (_HISTOGRAM_MOST, edges[-1]),
        (_HISTOGRAM_NUMBER, number),
        (_HISTOGRAM_SUM, mean * number),
        (_HISTOGRAM_SQUARES, (mean * mean + std * std) * number),
    )
    inside = b"".join(key + _DOUBLE.pack(value) for key, value in facts)
    inside += _delimited(_HISTOGRAM_LIMITS, b"".join(map(_DOUBLE.pack, edges[1:])))
    inside += _delimited(_HISTOGRAM_COUNTS, b"".join(_DOUBLE.pack(count) for count in counts))
    return _delimited(_SUMMARY_VALUE, _tag(tag) + _delimited(_VALUE_HISTOGRAM, inside))


@functools.lru_cache(maxsize=4096)
def _tag(name: str) -> bytes:
    return _delimited(_VALUE_TAG, name.encode())


def single_precision(value: float) -> float:
    return value if abs(value) <= _LARGEST_FLOAT or value != value else float("inf") if value > 0 else float("-inf")


def _delimited(key: bytes, payload: bytes) -> bytes:
    return key + varint(len(payload)) + payload


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; `number` is not negative."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def record(payload: bytes) -> bytes:
    length = _LENGTH.pack(len(payload))
    return length + masked_checksum(length) + payload + masked_checksum(payload)


def header_in(data: bytes) -> bytes:
    """Return the start of a file of ours, without its scalars."""
    return data[: _record_end(data, 0)]


def records_of_steps(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each step's number and its record, from the bytes of a file of ours. A record that is cut off at the end is left out."""
    at = _record_end(data, 0)
    while (end := _record_end(data, at)) <= len(data):
        yield _step_of(data[at + _LENGTH.size + _CHECKSUM.size : end]), data[at:end]
        at = end


def _record_end(data: bytes, at: int) -> int:
    """Return where the record at `at` ends; beyond the data where it is cut off, or where none is left."""
    if at + _LENGTH.size > len(data):
        return len(data) + 1
    (length,) = _LENGTH.unpack_from(data, at)
    return at + _LENGTH.size + 2 * _CHECKSUM.size + int(length)


def _step_of(payload: bytes) -> int:
    """Return the step of an event as `scalars` writes it: behind its key, which is behind the time."""
    step = 0
    for shift, byte in enumerate(payload[len(_EVENT_TIME) + _DOUBLE.size + len(_EVENT_STEP) :]):
        step |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            break
    return step


def masked_checksum(data: bytes) -> bytes:
    """Rotated and moved, since a checksum of data that holds checksums is weak."""
    crc = crc32c(data)
    return _CHECKSUM.pack((((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _WORD)


def crc32c(data: bytes) -> int:
    """Two bytes at a time: the standard library has only zlib's polynomial."""
    table, crc = _table(), _WORD
    even = len(data) & ~1
    for (pair,) in struct.iter_unpack("<H", data[:even]):
        crc = (crc >> 16) ^ table[(crc ^ pair) & 0xFFFF]
    if even < len(data):
        crc = (crc >> 8) ^ _byte_table()[(crc ^ data[-1]) & 0xFF]
    return crc ^ _WORD


@functools.cache
def _byte_table() -> Sequence[int]:
    return [_shifted(byte, 8) for byte in range(1 << 8)]


@functools.cache
def _table() -> Sequence[int]:
    """By sixteen bits: what a byte alone leaves, after the byte before it was shifted out."""
    single = _byte_table()
    return [(single[pair & 0xFF] >> 8) ^ single[(single[pair & 0xFF] ^ (pair >> 8)) & 0xFF] for pair in range(1 << 16)]


def _shifted(crc: int, bits: int) -> int:
    for _ in range(bits):
        crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
    return crc
