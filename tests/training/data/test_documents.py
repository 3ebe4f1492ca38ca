from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.training.data.documents import DocumentSource, cut, documents, find
from paceline.training.errors import InvalidInputError


def texts_of(files: list[Path], portion_bytes: int) -> list[bytes]:
    return [document.text for portion in cut(files, portion_bytes) for source in portion for document in documents(source, "text")]


@given(st.lists(st.text(max_size=30), max_size=20), st.integers(1, 200), st.sampled_from(["\n", "\n\n", "\r\n"]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_however_it_is_cut_each_line_is_read_exactly_once(tmp_path: Path, texts: list[str], portion_bytes: int, newline: str) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_bytes(newline.join(json.dumps({"text": text}) for text in texts).encode())
    assert texts_of([file], portion_bytes) == [text.encode() for text in texts if text]


def test_files_are_whole_documents_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("b.txt", "a.txt", "c/d.txt", ".hidden", ".git/config", "empty.txt", "other.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"" if name == "empty.txt" else name.encode())
    assert texts_of(find([tmp_path], "*.txt"), 3) == [b"a.txt", b"b.txt", b"c/d.txt"]
    assert len(find([tmp_path, tmp_path / "a.txt"], "*.txt")) == 4  # named twice, there once


def test_portions_have_about_the_size_that_was_asked_for(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"{number}.txt").write_bytes(b"x" * 10)
    sizes = [sum(source.bytes for source in portion) for portion in cut(find([tmp_path], "*"), 100)]
    assert sizes == [100, 100, 100]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"text": 3}', "line at byte 12: field 'text' holds int, not text"),
        ('{"body": "x"}', "line at byte 12: no field 'text'"),
        ("[1]", "no field 'text'"),
        ("{", "not readable as JSON"),
        ('{"text": "\\ud800"}', "not readable as JSON text"),
    ],
)
def test_a_line_without_text_is_named_with_the_way_out(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "lines.jsonl").write_text('{"text":""}\n' + line)
    with pytest.raises(InvalidInputError, match=message):
        texts_of([tmp_path / "lines.jsonl"], 100)


def test_a_line_that_begins_before_its_part_belongs_to_the_part_before(tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"text": "one"}\n{"text": "two"}\n')
    second = [document.text for document in documents(DocumentSource(file, 5, 32), "text")]
    assert second == [b"two"]


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"input .*nowhere does not exist"):
        find([tmp_path / "nowhere"], "*")
    with pytest.raises(InvalidInputError, match=r"no file in .* matches '\*.py'"):
        find([tmp_path], "*.py")
