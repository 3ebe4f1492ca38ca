"""Small files are whole or absent, and what fails leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitoring.files import make_folders, write_durably


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "order.json"
    for content in (b"first", b"second"):
        write_durably(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_nothing_beside(tmp_path: Path) -> None:
    (tmp_path / "order.json").mkdir()
    with pytest.raises(IsADirectoryError):
        write_durably(tmp_path / "order.json", b"content")
    assert [path.name for path in tmp_path.iterdir()] == ["order.json"]


def test_folders_are_made_with_their_parents_once(tmp_path: Path) -> None:
    for _ in range(2):
        make_folders(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
