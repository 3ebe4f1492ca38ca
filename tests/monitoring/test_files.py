"""Small files are whole or absent, and what fails leaves nothing behind."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline.monitoring import files
from paceline.monitoring.files import Appender, UnfitFileError, make_folders, open_to_append, write_durably


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


def test_what_a_full_disk_took_a_part_of_is_cut_off_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appender, written = Appender(tmp_path / "file"), os.write
    appender.append(b"whole")

    def half(descriptor: int, content: bytes) -> int:
        if len(content) < 4:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return written(descriptor, content[:4])

    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space left"):
            appender.append(b"torn a")
    assert (tmp_path / "file").read_bytes() == b"whole"
    appender.append(b" again")
    assert (tmp_path / "file").read_bytes() == b"whole again"
    appender.close()


def test_a_machine_that_stands_still_costs_nobody_a_turn_at_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds the file stood still, too, and had no time to give it up."""
    clock, turns = iter([0.0, 0.002, 3.0]), iter([False, False, True])
    monkeypatch.setattr(files, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=lambda _: None))
    monkeypatch.setattr(files, "try_lock", lambda _: next(turns))
    with Appender(tmp_path / "file") as appender, appender.lock():
        appender.append(b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to(path.with_name("elsewhere"))], ids=["pipe", "link"])
def test_what_is_no_plain_file_is_not_appended_to_and_not_waited_for(tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(tmp_path / "file")
    with pytest.raises(UnfitFileError):
        open_to_append(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
