"""Images, histograms and tables that a rank logs at a step: the content of an artifact of kind `media`.

A content is `length (4 bytes, big-endian) | a MediaDocument as JSON, compressed by zlib | the files of its images, one behind the other`. It may come from
any code: the limits hold for who reads it too, so that a few KB do not unfold to gigabytes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

#: The most that one call may log under one key, as it travels and is stored.
MAX_OBJECT_BYTES = 8 << 20
#: The most that one rank may log in one generation, and that all ranks of a job may log together.
MAX_RANK_BYTES, MAX_RANK_OBJECTS = 512 << 20, 10_000
MAX_JOB_BYTES, MAX_JOB_OBJECTS = 1 << 30, 50_000
MAX_IMAGES = 64
MAX_PIXELS = 16_777_216
MAX_CAPTION_CHARACTERS = 500
MAX_BINS = 512
MAX_ROWS = 10_000
MAX_COLUMNS = 200
MAX_CELL_CHARACTERS = 2_000

MediaKind = Literal["images", "histogram", "table"]
#: A document is not larger before it is compressed: one that is was not written by a rank of ours.
MAX_DOCUMENT_BYTES: Mapping[MediaKind, int] = MappingProxyType({"images": 1 << 20, "histogram": 256 << 10, "table": 64 << 20})
ImageFormat = Literal["png", "jpeg"]
Cell = str | int | float | bool | None
Pixels = Annotated[int, Meta(ge=1, le=MAX_PIXELS)]
Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_LENGTH = struct.Struct(">I")


class MediaLabel(msgspec.Struct, frozen=True, kw_only=True):
    """Key and kind of an object, as the note of its file says them. `count`: images, the values of a histogram, or rows."""

    key: str
    kind: MediaKind
    count: int


class StoredImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image of a list. `bytes`: the size of its file."""

    width: Pixels
    height: Pixels
    caption: str
    format: ImageFormat
    bytes: Annotated[int, Meta(ge=1, le=MAX_OBJECT_BYTES)]


class StoredHistogram(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of finite values by bin, with one edge more than counts. The statistics are of the finite values; None where there are none."""

    edges: Annotated[tuple[float, ...], Meta(max_length=MAX_BINS + 1)]
    counts: Annotated[tuple[Count, ...], Meta(max_length=MAX_BINS)]
    values: int
    nans: int
    infs: int
    mean: float | None
    std: float | None
    least: float | None
    most: float | None

    def __post_init__(self) -> None:
        if len(self.edges) != (len(self.counts) + 1 if self.counts else 0):
            raise ValueError(f"{len(self.counts)} counts have {len(self.edges)} edges")


class StoredTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table's first rows. `total_rows`: how many were logged. NaN and the infinities are the words of `on_the_wire`."""

    columns: Annotated[tuple[str, ...], Meta(max_length=MAX_COLUMNS)]
    rows: Annotated[tuple[Annotated[tuple[Cell, ...], Meta(max_length=MAX_COLUMNS)], ...], Meta(max_length=MAX_ROWS)]
    total_rows: int


class MediaDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of the three is there."""

    images: Annotated[tuple[StoredImage, ...], Meta(max_length=MAX_IMAGES)] = ()
    histogram: StoredHistogram | None = None
    table: StoredTable | None = None


class UnpackedMedia(NamedTuple):
    """A document, its bytes before it was compressed, and where the first image begins in the content."""

    document: MediaDocument
    bytes: int
    files_at: int


class DamagedMediaError(ValueError):
    """The content of an artifact is no logged object."""


def pack(document: MediaDocument, files: Sequence[bytes] = ()) -> bytes:
    """Return the content of an artifact; `files` are those of the document's images, in their order."""
    head = zlib.compress(msgspec.json.encode(document), 6)
    return b"".join((_LENGTH.pack(len(head)), head, *files))


def image_place(beginning: bytes, number: int) -> tuple[StoredImage, int] | None:
    """Return the image with this number, from 0 on, and where its file begins in the content; None where there is none.

    `beginning`: of the content, at least as far as the first file. Raises DamagedMediaError.
    """
    document, _, at = unpack(beginning, "images")
    if not 0 <= number < len(document.images):
        return None
    return document.images[number], at + sum(image.bytes for image in document.images[:number])


def unpack(content: bytes, kind: MediaKind) -> UnpackedMedia:
    """Return the document of a content, or of its beginning. Raises DamagedMediaError where it is none, or over the limits of its kind."""
    unpacker, most = zlib.decompressobj(), MAX_DOCUMENT_BYTES[kind]
    try:
        (length,) = _LENGTH.unpack_from(content)
        text = unpacker.decompress(content[_LENGTH.size : _LENGTH.size + length], most)
        if not unpacker.eof:
            raise DamagedMediaError(f"it is cut off, or has more than {most:,} bytes")
        document = msgspec.json.decode(text, type=MediaDocument)
    except (struct.error, zlib.error, msgspec.MsgspecError) as error:
        raise DamagedMediaError(str(error)) from error
    return UnpackedMedia(document, len(text), _LENGTH.size + length)
