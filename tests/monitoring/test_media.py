"""The content of a logged object: packed, and opened again."""

from __future__ import annotations

import random
import zlib

import pytest

from paceline.monitoring.media import (
    MAX_DOCUMENT_BYTES,
    DamagedMediaError,
    MediaDocument,
    StoredImage,
    StoredTable,
    image_place,
    pack,
    unpack,
)


def image(size: int) -> StoredImage:
    return StoredImage(width=4, height=3, caption="ein Bild, 画像", format="png", bytes=size)


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
    assert unpack(pack(MediaDocument(table=table))).table == table


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00", b"\x00\x00\x00\xff" + b"x" * 300, b"\x00\x00\x00\x08" + zlib.compress(b"[]"), random.Random(7).randbytes(100)],
    ids=["empty", "one byte", "a length beyond its end", "a list", "noise"],
)
def test_other_contents_are_refused(content: bytes) -> None:
    with pytest.raises(DamagedMediaError):
        unpack(content)


def test_a_document_that_would_fill_the_memory_is_refused() -> None:
    bomb = zlib.compress(b" " * (MAX_DOCUMENT_BYTES + 1))
    with pytest.raises(DamagedMediaError, match="more than"):
        unpack(len(bomb).to_bytes(4, "big") + bomb)
