"""The times of printed bytes: never before they were there, never after they were seen, and bounded."""

from __future__ import annotations

import os
from pathlib import Path

from paceline.cluster.agent.upload.print_times import MOST_LOOKS, PrintTimes


def write(path: Path, content: bytes, time: float) -> None:
    with open(path, "ab") as file:
        file.write(content)
    os.utime(path, (time, time))


def test_bytes_were_printed_by_the_first_look_that_found_them(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    times = PrintTimes(path)
    times.look(1.0)  # there is no file yet
    write(path, b"12345", 10.0)
    times.look(10.2)
    write(path, b"67890", 20.0)
    times.look(20.2)
    assert [times.by_when(end, 99.0) for end in (1, 5, 6, 10, 11)] == [10.0, 10.0, 20.0, 20.0, 99.0]
    times.forget_before(5)
    assert times.by_when(6, 99.0) == 20.0


def test_a_time_that_the_rank_has_set_is_kept_between_two_looks(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    times = PrintTimes(path)
    write(path, b"1", 10.0)
    times.look(10.2)
    write(path, b"2", 5.0)
    times.look(20.0)
    write(path, b"3", 1e9)
    times.look(30.0)
    assert [times.by_when(end, 99.0) for end in (1, 2, 3)] == [10.0, 10.0, 30.0]


def test_looks_are_bounded_and_the_newest_stays(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    times = PrintTimes(path)
    for number in range(1, 2 * MOST_LOOKS):
        write(path, b"x", float(number))
        times.look(float(number))
    assert len(times._sizes) <= MOST_LOOKS
    late = [times.by_when(end, 1e9) - end for end in range(1, 2 * MOST_LOOKS)]
    assert min(late) == 0
    assert max(late) < 10
    assert late[-1] == 0
