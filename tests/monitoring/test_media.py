"""The content of a logged object: packed, and opened again."""

from __future__ import annotations

import random
import zlib
from typing import Any

import msgspec
import pytest

from paceline.monitoring.media import (
    MAX_BINS,
    MAX_CAPTION_CHARACTERS,
    MAX_COLUMNS,
    MAX_DOCUMENT_BYTES,
    MAX_IMAGES,
    MAX_OBJECT_BYTES,
    MAX_ROWS,
    DamagedMediaError,
    MediaDocument,
    MediaKind,
    StoredHistogram,
    StoredImage,
    StoredTable,
    image_place,
    pack,
    unpack,
)


def image(size: int, caption: str = "ein Bild, 画像") -> StoredImage:
    return StoredImage(width=4, height=3, caption=caption, format="png", bytes=size)


def histogram(counts: tuple[int, ...], edges: tuple[float, ...]) -> StoredHistogram:
    return StoredHistogram(edges=edges, counts=counts, values=1, nans=0, infs=0, mean=None, std=None, least=None, most=None)


def test_each_image_is_found_behind_those_before_it() -> None:
    files = [b"first", b"the second", b"3"]
    content = pack(MediaDocument(images=tuple(image(len(file)) for file in files)), files)
    for number, file in enumerate(files):
        place = image_place(content, number)
        assert place is not None
        assert content[place[1] : place[1] + place[0].bytes] == file
    assert image_place(content, 3) is None
    assert image_place(content, -1) is None


def test_an_image_is_placed_by_the_beginning_of_the_content_alone() -> None:
    content = pack(MediaDocument(images=(image(1 << 20), image(3))), [b"x" * (1 << 20), b"end"])
    place = image_place(content[:4096], 1)
    assert place is not None
    assert content[place[1] :] == b"end"


def test_a_table_comes_back_with_every_type_of_cell() -> None:
    table = StoredTable(columns=("a", "b"), rows=((1, "NaN"), (0.5, None), (True, "x")), total_rows=3)
    assert unpack(pack(MediaDocument(table=table)), "table").document.table == table


def test_the_largest_that_may_be_logged_come_back() -> None:
    pictures = tuple(image(MAX_OBJECT_BYTES, caption="\x01" * MAX_CAPTION_CHARACTERS) for _ in range(MAX_IMAGES))
    assert unpack(pack(MediaDocument(images=pictures)), "images").document.images == pictures
    for counts in ((), ((1 << 63) - 1,) * MAX_BINS):
        found = histogram(counts, tuple(-1.1111111111111111e-300 * n for n in range(MAX_BINS + 1)) if counts else ())
        assert unpack(pack(MediaDocument(histogram=found)), "histogram").document.histogram == found
    table = StoredTable(columns=("c",) * MAX_COLUMNS, rows=((None,) * MAX_COLUMNS,) * MAX_ROWS, total_rows=1 << 40)
    assert unpack(pack(MediaDocument(table=table)), "table").document.table == table


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"\x00\x00\x00\xff" + b"x" * 300, b"\x00\x00\x00\x08" + zlib.compress(b"[]"), random.Random(7).randbytes(100)],
    ids=["empty", "one byte", "a length beyond its end", "a list", "noise"],
)
def test_other_contents_are_refused(content: bytes) -> None:
    with pytest.raises(DamagedMediaError):
        unpack(content, "table")


def test_a_document_that_would_fill_the_memory_is_refused() -> None:
    bomb = zlib.compress(b" " * (MAX_DOCUMENT_BYTES["table"] + 1))
    with pytest.raises(DamagedMediaError, match="more than"):
        unpack(len(bomb).to_bytes(4, "big") + bomb, "table")


def packed(**parts: Any) -> bytes:
    """The content that a job's own code may write, whatever is in it."""
    head = zlib.compress(msgspec.json.encode(parts))
    return len(head).to_bytes(4, "big") + head


PICTURE = {"width": 4, "height": 3, "caption": "", "format": "png", "bytes": 10}
COUNTED = {"values": 1, "nans": 0, "infs": 0, "mean": None, "std": None, "least": None, "most": None}


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        ("histogram", {"histogram": COUNTED | {"edges": [0] * 200_001, "counts": [0] * 200_000}}),  # 520 bytes
        ("table", {"histogram": COUNTED | {"edges": [0] * 514, "counts": [0] * 513}}),
        ("histogram", {"histogram": COUNTED | {"edges": [0] * 2, "counts": [0] * 2}}),
        ("histogram", {"histogram": COUNTED | {"edges": [0], "counts": []}}),
        ("histogram", {"histogram": COUNTED | {"edges": [0, 1], "counts": [-1]}}),
        ("images", {"images": [PICTURE] * 65}),
        ("images", {"images": [PICTURE | {"bytes": 10**15}]}),
        ("images", {"images": [PICTURE | {"bytes": -1}]}),
        ("images", {"images": [PICTURE | {"width": -1}]}),
        ("images", {"images": [PICTURE | {"caption": "x" * (1 << 20)}]}),
        ("table", {"table": {"columns": ["c"] * 201, "rows": [], "total_rows": 0}}),
        ("table", {"table": {"columns": ["c"], "rows": [[0] * 201], "total_rows": 1}}),
        ("table", {"table": {"columns": ["c"], "rows": [[]] * 10_001, "total_rows": 1}}),
    ],
)
def test_few_bytes_that_unfold_to_more_than_a_rank_may_log_are_refused(kind: MediaKind, parts: dict[str, Any]) -> None:
    with pytest.raises(DamagedMediaError):
        unpack(packed(**parts), kind)
