from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from paceline.cluster.agent.curves import search
from paceline.cluster.agent.curves.search import CurveSearch

MANY = 100_000


def look(found: CurveSearch, entries: int) -> int:
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
    found = CurveSearch(str(tmp_path), lambda name: name == "wanted")
    assert look(found, 50) >= 10
    assert look(found, 50) == 1


def test_new_files_in_new_folders_turn_up_and_circles_end(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "circle").symlink_to(tmp_path)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "wanted").touch()
    found = CurveSearch(str(tmp_path), lambda name: name == "wanted")
    assert found.look() == []
    (tmp_path / "a" / "b" / "wanted").touch()
    assert found.look() == [str(tmp_path / "a" / "b" / "wanted")]


def test_folders_beyond_the_limit_are_left_out_and_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_FOLDERS", 5)
    for number in range(10):
        (tmp_path / f"folder{number}").mkdir()
    found = CurveSearch(str(tmp_path), lambda name: False)
    found.look()
    assert found.left_out


def test_a_folder_that_goes_away_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    found = CurveSearch(str(tmp_path), lambda name: name == "wanted")
    found.look()
    (tmp_path / "gone").rmdir()
    found.look()
    (tmp_path / "gone").mkdir()
    (tmp_path / "gone" / "wanted").touch()
    assert found.look() == [str(tmp_path / "gone" / "wanted")]


def test_a_hundred_thousand_files_cost_a_bounded_look_and_no_memory(tmp_path: Path) -> None:
    """A dataset in the working directory: empty files, of which nothing is kept."""
    folder = os.open(tmp_path, os.O_RDONLY)
    for number in range(MANY):
        os.close(os.open(f"{number}.jpg", os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    os.utime(tmp_path, (1.0, 1.0))
    asked: list[int] = [0]

    def is_wanted(name: str) -> bool:
        asked[0] += 1
        return False

    found = CurveSearch(str(tmp_path), is_wanted)
    tracemalloc.start()
    most_asked, looks = 0, 0
    while found.passes == 0:
        before = asked[0]
        found.look()
        most_asked, looks = max(most_asked, asked[0] - before), looks + 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (asked[0], most_asked) == (MANY, search.LOOK_ENTRIES)
    assert looks == MANY // search.LOOK_ENTRIES + 1
    assert peak < 1 << 20
    found.look()
    assert (found.passes, asked[0]) == (2, MANY)  # nothing has changed, and nothing was read again
