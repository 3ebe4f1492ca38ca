"""What a rank records of its gradients in one step: the content of an artifact of kind `gradients`, as JSON, compressed by gzip.

Half of a histogram's bins are for negative numbers. The first bin reaches from minus infinity to the first of `edges`, the last from the last of them to
infinity; a bin has its lower edge. A content may come from any code: the limits hold for who reads it too.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Annotated

import msgspec
from msgspec import Meta

#: A record is not larger before it is compressed: one that is was not written by a rank of ours. Lists of small numbers take ten times as much
#: memory once they are decoded.
MAX_RECORD_BYTES = 64 << 20
MAX_DIMENSIONS = 64
#: Parameters of one record: what a spec may ask for at most. One whose text is short takes twenty times as much memory as that.
MAX_PARAMETERS = 100_000
MAX_BINS = 1024


class ParameterRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Gradient of one parameter. `norm`: L2; None where an element is not finite. `histogram`: of the elements in none of `zeros`, `nans` and `infs`."""

    name: str
    shape: Annotated[tuple[int, ...], Meta(max_length=MAX_DIMENSIONS)]  # of what this rank has
    sharded: bool  # this rank has a shard of it, and all numbers are of that
    elements: int
    norm: float | None
    zeros: int
    nans: int
    infs: int
    histogram: Annotated[tuple[int, ...], Meta(max_length=MAX_BINS)]


class RecordedGradients(msgspec.Struct, frozen=True, kw_only=True):
    """Gradients of one rank in one step. `unused`: chosen parameters that backward has not reached. `edges`: of the bins, without the infinite ones."""

    step: int
    parameters: Annotated[tuple[ParameterRecord, ...], Meta(max_length=MAX_PARAMETERS)]
    unused: Annotated[tuple[str, ...], Meta(max_length=MAX_PARAMETERS)]
    edges: Annotated[tuple[float, ...], Meta(max_length=MAX_BINS + 1)]


class DamagedRecordError(ValueError):
    """The content of an artifact is no record of gradients."""


def compress(record: RecordedGradients) -> bytes:
    return gzip.compress(msgspec.json.encode(record), compresslevel=5, mtime=0)


def decompress(content: bytes) -> bytes:
    """Return the JSON text of the record in `content`. Raises DamagedRecordError."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        text = unpacker.decompress(content, MAX_RECORD_BYTES)
    except zlib.error as error:
        raise DamagedRecordError(str(error)) from error
    if not unpacker.eof:
        raise DamagedRecordError(f"it is cut off, or has more than {MAX_RECORD_BYTES:,} bytes")
    return text


def decode(text: bytes) -> RecordedGradients:
    """Return the record whose JSON text this is. Raises DamagedRecordError."""
    try:
        return msgspec.json.decode(text, type=RecordedGradients)
    except msgspec.MsgspecError as error:
        raise DamagedRecordError(str(error)) from error
