"""Output as lines: whatever the reader is given at a time, and however often it starts anew, the lines are the same."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.agent.upload.output import MAX_LINE_BYTES, OutputReader, level_of
from paceline.monitoring.points import LogLine


class Reading:
    """Lines taken one after another, as the uploader does; `restart` forgets all but what was saved."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reader = OutputReader(path, set())
        self.offset = 0
        self.lines: list[LogLine] = []

    def restart(self) -> None:
        self.reader = OutputReader(self.path, set(self.reader.cuts))

    def read(self, now: float = 0.0, *, final: bool = False, limit: int = 1000, acknowledge: bool = True) -> list[str]:
        found = self.reader.read(self.offset, len(self.lines), limit, now, final=final)
        if acknowledge:
            self.lines += [read.line for read in found]
            self.offset = found[-1].end if found else self.offset
        return [read.line.text for read in found]

    @property
    def texts(self) -> list[str]:
        return [line.text for line in self.lines]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output.log"


def append(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)


def test_whole_lines_are_numbered_and_a_partial_one_waits(output: Path) -> None:
    reading = Reading(output)
    assert reading.read() == []
    append(output, b"one\n\ntwo\npart")
    assert reading.read(now=0.0) == ["one", "", "two"]
    assert reading.read(now=0.5) == []
    append(output, b"ial\n")
    assert reading.read(now=0.9) == ["partial"]
    assert [line.seq for line in reading.lines] == [1, 2, 3, 4]


def test_a_partial_line_is_sent_after_a_second_and_its_rest_is_the_next_line(output: Path) -> None:
    reading = Reading(output)
    append(output, b"loading")
    assert reading.read(now=0.0) == []
    assert reading.read(now=1.0) == ["loading"]
    append(output, b" ... done\nnext\n")
    assert reading.read(now=1.1) == [" ... done", "next"]


def test_the_newline_after_a_cut_is_not_a_line(output: Path) -> None:
    reading = Reading(output)
    append(output, b"prompt> ")
    reading.read(now=0.0)
    reading.read(now=1.0)
    append(output, b"\nnext\n")
    assert reading.read(now=1.1) == ["next"]


def test_a_cut_that_was_not_acknowledged_is_made_again_at_the_same_place(output: Path) -> None:
    reading = Reading(output)
    append(output, b"loading")
    reading.read(now=0.0)
    assert reading.read(now=1.0, acknowledge=False) == ["loading"]
    append(output, b" ... done\n")
    reading.restart()
    assert reading.read(now=1.1) == ["loading", " ... done"]


def test_an_exit_ends_the_last_line(output: Path) -> None:
    reading = Reading(output)
    append(output, b"a\nb")
    assert reading.read(final=True) == ["a", "b"]
    assert reading.read(final=True) == []


@pytest.mark.parametrize("length", [MAX_LINE_BYTES - 1, MAX_LINE_BYTES])
def test_a_line_up_to_the_limit_is_whole(output: Path, length: int) -> None:
    reading = Reading(output)
    append(output, b"x" * length + b"\nnext\n")
    assert reading.read() == ["x" * length, "next"]


def test_a_longer_line_continues_with_a_note(output: Path) -> None:
    reading = Reading(output)
    append(output, b"x" * (2 * MAX_LINE_BYTES + 5) + b"\nnext\n")
    first, second, third, following = reading.read()
    assert first == second == "x" * MAX_LINE_BYTES + " … (line over 16 KiB, continued)"
    assert (third, following) == ("xxxxx", "next")


def test_what_is_not_text_is_replaced(output: Path) -> None:
    reading = Reading(output)
    append(output, b"caf\xc3\xa9 \xff\x00end\r\n 10%\r 20%\r 30%\n")
    assert reading.read() == ["café \ufffd\ufffdend", " 30%"]


def test_a_state_of_a_progress_bar_takes_the_place_of_the_one_that_was_sent(output: Path) -> None:
    reading = Reading(output)
    append(output, b"start\n\r 10%")
    assert reading.read(now=0.0) == ["start"]
    assert reading.read(now=1.0) == [" 10%"]
    append(output, b"\r 20%\r 30%")
    reading.read(now=1.1)
    assert reading.read(now=2.1) == ["\r 30%"]
    append(output, b"...\r100%\nnext\n")
    assert reading.read(now=2.2) == ["\r100%", "next"]


def test_lines_have_the_time_of_printing_however_late_they_are_read(output: Path) -> None:
    append(output, b"early\n")
    os.utime(output, (100.0, 100.0))
    reading = Reading(output)
    reading.reader.look(100.2)
    append(output, b"later\n")
    os.utime(output, (101.0, 101.0))
    reading.reader.look(101.1)
    append(output, b"now\n")
    os.utime(output, (900.0, 900.0))
    reading.read(now=900.1, acknowledge=False)
    reading.read(now=950.0)
    assert [(line.text, line.time) for line in reading.lines] == [("early", 100.0), ("later", 101.0), ("now", 900.0)]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("ERROR: no space", "error"),
        ("[WARNING] slow", "warning"),
        ("DEBUG x", "debug"),
        ("Traceback (most recent call last):", "error"),
        ("step 3: ERROR-free", "info"),
        ("", "info"),
    ],
)
def test_levels_are_the_word_a_line_begins_with(text: str, level: str) -> None:
    assert level_of(text) == level


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("2026-11-23 10:00:00,123 - mylog - ERROR - no data", "error"),  # logging's usual forms
        ("2026-11-23T10:00:00Z WARNING root: low disk", "warning"),
        ("[2026-11-23 10:00:00] [DEBUG] x", "debug"),
        ("2026-11-23 10:00:00 INFO there was an ERROR before", "info"),
        ("2026-11-23 10:00:00 loaded ERROR.log", "info"),
        ("2026-11-23 10:00:00 TERRORS seen", "info"),
        ("[rank1]: Traceback (most recent call last):", "error"),  # torch's, in a process group
        ("[rank1]: ERROR x", "error"),
        ("[W1123 10:00:00.123 socket.cpp:767] [c10d] retrying", "warning"),
        ("[rank0]:[W1123 10:00:00.123 ProcessGroup.cpp:1] not destroyed", "warning"),
        ("E1123 10:00:00.123 x.cc:1] no card", "error"),
        ("[E ProcessGroupNCCL.cpp:474] watchdog timed out", "error"),
        ("[W 10:00:00.123 NotebookApp] slow", "warning"),
        ("10:00:00 - root - WARNING - slow", "warning"),
        ("11/23/2026 10:00:00 - WARNING - transformers - slow", "warning"),
        ("\x1b[31mERROR\x1b[0m no data", "error"),
        ("/lib/torch/x.py:12: UserWarning: slow", "warning"),
        ("torch.OutOfMemoryError: CUDA out of memory", "error"),
        ("KeyError: 'x'", "error"),
        ("Errors: none", "info"),
        ("I1123 10:00:00.123 x.cc:1] fine", "info"),
        ("step 10 ERROR rate 0.1", "info"),
        ("W and E are letters", "info"),
        ("2026-11-23 nothing follows", "info"),
    ],
)
def test_levels_of_the_usual_loggers_are_recognised(text: str, level: str) -> None:
    assert level_of(text) == level


@given(
    content=st.text(alphabet="ab\n", max_size=300).map(str.encode),
    steps=st.lists(st.tuples(st.integers(0, 40), st.booleans(), st.booleans(), st.integers(1, 5)), max_size=30),
)
def test_no_byte_is_lost_or_doubled_however_it_is_read(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, steps: list[tuple[int, bool, bool, int]]
) -> None:
    """Written in pieces; read at any time, with limits, with lost acknowledgements and restarts in between."""
    output = tmp_path_factory.mktemp("output") / "output.log"
    reading, now, rest = Reading(output), 0.0, content
    sent: dict[int, str] = {}
    for size, restart, acknowledge, limit in steps:
        append(output, rest[:size])
        rest, now = rest[size:], now + 0.6
        before = len(reading.lines)
        for number, text in enumerate(reading.read(now, limit=limit, acknowledge=acknowledge), start=before + 1):
            assert sent.setdefault(number, text) == text
        if restart:
            reading.restart()
    append(output, rest)
    while reading.read(now, final=True):
        pass
    assert all(reading.texts[number - 1] == text for number, text in sent.items())
    assert "".join(reading.texts) == content.decode().replace("\n", "")
