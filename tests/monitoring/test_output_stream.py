"""A rank's prints on a disk without room, for which /dev/full stands."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.monitoring.output_stream import output_stream


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """Of the file `output`, which a test may replace by a full disk and by itself again."""
    number = os.open(tmp_path / "output", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield number
    os.close(number)


def lead_to(descriptor: int, path: Path) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, descriptor)
    os.close(file)


FULL = Path("/dev/full")


def test_prints_on_a_full_disk_raise_nothing_and_the_lost_bytes_are_told_once_there_is_room(tmp_path: Path, descriptor: int) -> None:
    """The first progress line that found no room ended its rank."""
    stream = output_stream(descriptor)
    print("before", file=stream, flush=True)
    lead_to(descriptor, FULL)
    lost = "lost\nlost as well\n"
    for line in lost.splitlines():
        print(line, file=stream, flush=True)
    lead_to(descriptor, tmp_path / "output")
    print("after", file=stream, flush=True)
    print("and on", file=stream, flush=True)
    assert (tmp_path / "output").read_text().splitlines() == [
        "before",
        f"WARNING {len(lost)} bytes of output are lost here: {os.strerror(errno.ENOSPC)}",
        "after",
        "and on",
    ]


def test_a_line_that_was_cut_off_ends_before_the_note(tmp_path: Path, descriptor: int) -> None:
    stream = output_stream(descriptor)
    stream.write("half a li")
    stream.flush()
    lead_to(descriptor, FULL)
    print("ne", file=stream)
    lead_to(descriptor, tmp_path / "output")
    print("after", file=stream)
    assert [line.partition(":")[0] for line in (tmp_path / "output").read_text().splitlines()] == [
        "half a li",
        "WARNING 3 bytes of output are lost here",
        "after",
    ]


def test_each_full_disk_is_told_for_itself(tmp_path: Path, descriptor: int) -> None:
    stream = output_stream(descriptor)
    for word in ("one", "three"):
        lead_to(descriptor, FULL)
        print(word, file=stream)
        lead_to(descriptor, tmp_path / "output")
        print("room", file=stream)
    counts = [line.split()[1] for line in (tmp_path / "output").read_text().splitlines() if line.startswith("WARNING")]
    assert counts == ["4", "6"]


def test_any_other_failure_is_raised(descriptor: int) -> None:
    reading, writing = os.pipe()
    os.dup2(writing, descriptor)
    os.close(writing)
    os.close(reading)
    stream = output_stream(descriptor)
    with pytest.raises(BrokenPipeError):
        print("to nobody", file=stream, flush=True)
    lead_to(descriptor, Path(os.devnull))  # what is still buffered goes there
    stream.flush()


def test_it_looks_like_standard_output(descriptor: int) -> None:
    stream = output_stream(descriptor)
    assert (stream.fileno(), stream.mode, stream.line_buffering, stream.errors) == (descriptor, "w", 1, "backslashreplace")
    assert not stream.isatty()
