from __future__ import annotations

import os
from pathlib import Path

import pytest

from cluster.agent.curves import search
from cluster.agent.curves.search import Search


def look(found: Search, entries: int) -> int:
    """Looks until everything has been looked at once; how many that took."""
    looks, passes = 0, found.passes
    while found.passes == passes:
        found.look(entries)
        looks += 1
    return looks


def test_a_large_folder_takes_many_looks_and_is_not_read_again(tmp_path: Path) -> None:
    for number in range(500):
        (tmp_path / f"file{number}").touch()
    os.utime(tmp_path, (1.0, 1.0))
    found = Search(str(tmp_path), lambda name: name == "wanted")
    assert look(found, 50) >= 10
    assert look(found, 50) == 1


def test_new_files_in_new_folders_turn_up_and_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "circle").symlink_to(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "wanted").touch()
    found = Search(str(tmp_path), lambda name: name == "wanted")
    assert found.look() == []
    (tmp_path / "a" / "b" / "wanted").touch()
    assert found.look() == [str(tmp_path / "a" / "b" / "wanted")]


def test_folders_beyond_the_limit_are_left_out_and_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_FOLDERS", 5)
    for number in range(10):
        (tmp_path / f"folder{number}").mkdir()
    found = Search(str(tmp_path), lambda name: False)
    found.look()
    assert found.left_out


def test_a_folder_that_goes_away_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    found = Search(str(tmp_path), lambda name: name == "wanted")
    found.look()
    (tmp_path / "gone").rmdir()
    found.look()
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "wanted").touch()
    assert found.look() == [str(tmp_path / "gone" / "wanted")]
