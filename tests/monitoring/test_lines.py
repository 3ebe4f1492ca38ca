"""Messages in lines, in whatever pieces they arrive."""

from __future__ import annotations

import msgspec
import pytest

from paceline.monitoring.lines import LineBuffer, encode_line


class Said(msgspec.Struct):
    text: str


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lines_are_whole_whatever_the_pieces(size: int) -> None:
    messages = [Said("one"), Said("two\nlines"), Said("")]
    stream, buffer = b"".join(map(encode_line, messages)), LineBuffer()
    lines = [line for start in range(0, len(stream), size) for line in buffer.take(stream[start : start + size])]
    assert [msgspec.json.decode(line, type=Said) for line in lines] == messages


def test_what_is_not_whole_is_no_line() -> None:
    buffer = LineBuffer()
    assert buffer.take(b'{"text":') == []
    assert buffer.take(b"") == []
    assert buffer.take(b'"x"}\n{') == [b'{"text":"x"}']
