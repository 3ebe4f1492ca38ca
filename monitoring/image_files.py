"""PNG files, written without a library for images, and the sizes of PNG and JPEG files. Source: the PNG specification (ISO/IEC 15948)."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from paceline.monitoring.media import ImageFormat

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_HEADER = struct.Struct(">IIBBBBB")
#: PNG's colour types, by the number of channels.
_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
_FILTER_UP = 2
_JPEG_START = b"\xff\xd8\xff"
#: Start of frame markers: C4, C8 and CC are something else.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
COMPRESSION = 6


@dataclass(frozen=True)
class Pixels:
    """Rows of pixels from the top, 8 bits a channel. `channels`: 1 (grey), 3 (RGB) or 4 (RGBA)."""

    width: int
    height: int
    channels: int
    data: bytes


def png(pixels: Pixels) -> bytes:
    """Return the pixels as a PNG file. Each row is stored as its difference from the row above, which compresses better."""
    stride = pixels.width * pixels.channels
    rows, above = bytearray(), 0
    mask = int.from_bytes(b"\x80" * stride, "big")
    for start in range(0, len(pixels.data), stride):
        row = int.from_bytes(pixels.data[start : start + stride], "big")
        rows.append(_FILTER_UP)
        rows += _difference(row, above, mask).to_bytes(stride, "big")
        above = row
    header = _HEADER.pack(pixels.width, pixels.height, 8, _COLOUR_TYPES[pixels.channels], 0, 0, 0)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(rows, COMPRESSION)) + _chunk(b"IEND", b"")


def _difference(row: int, above: int, mask: int) -> int:
    """Subtract byte by byte, modulo 256, a whole row at once: the highest bit of each byte keeps borrows from the next one."""
    return ((row | mask) - (above & ~mask)) ^ ((row ^ ~above) & mask)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def described(file: bytes) -> tuple[ImageFormat, int, int] | None:
    """Return the format, width and height of a PNG or JPEG file; None for anything else."""
    if file.startswith(_SIGNATURE) and file[12:16] == b"IHDR" and len(file) >= 33:
        width, height = struct.unpack_from(">II", file, 16)
        return ("png", width, height) if width and height else None
    if file.startswith(_JPEG_START):
        size = _jpeg_size(file)
        return None if size is None else ("jpeg", *size)
    return None


def _jpeg_size(file: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(file) and file[at] == 0xFF:
        marker = file[at + 1]
        if marker in _JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", file, at + 5)
            return (width, height) if width and height else None
        at += 1 if marker == 0xFF else 2 + int.from_bytes(file[at + 2 : at + 4], "big")
    return None
