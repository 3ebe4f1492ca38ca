"""Objects as pickled frames of equal length, so that ranks can gather them in one call where all are short, and in two where any is long."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

#: Bytes of each rank's frame that the first gather carries.
OPENING_BYTES = 256
_LENGTH = struct.Struct("<Q")


def gather_objects(value: Any, gather: Callable[[Tensor], list[Tensor]]) -> list[Any]:
    """Return the `value` of every rank, by rank. `gather` returns the uint8 tensors of all ranks, which have one length."""
    frame = encode(value)
    frames = [bytes_of(opening) for opening in gather(padded(frame[:OPENING_BYTES], OPENING_BYTES))]
    rest = max(map(length_of, frames)) - OPENING_BYTES
    if rest > 0:
        rests = gather(padded(frame[OPENING_BYTES:], rest))
        frames = [opening + bytes_of(part) for opening, part in zip(frames, rests, strict=True)]
    return decode(frames)


def encode(value: Any) -> bytes:
    content = pickle.dumps(value)
    return _LENGTH.pack(_LENGTH.size + len(content)) + content


def decode(frames: Sequence[bytes]) -> list[Any]:
    return [pickle.loads(frame[_LENGTH.size : length_of(frame)]) for frame in frames]


def length_of(frame: bytes) -> int:
    """Return the bytes of a whole frame, its head included; at least its head is at hand."""
    length: int = _LENGTH.unpack_from(frame)[0]
    return length


def padded(content: bytes, length: int) -> Tensor:
    return torch.frombuffer(bytearray(content.ljust(length, b"\0")), dtype=torch.uint8)


def bytes_of(tensor: Tensor) -> bytes:
    return tensor.numpy().tobytes()
