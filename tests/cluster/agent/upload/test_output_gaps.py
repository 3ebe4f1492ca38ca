"""A rank that floods its output costs neither the node's disk nor anybody's uploads, and what is left out is told."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

from paceline.cluster.agent.upload import output, output_gaps
from paceline.cluster.agent.upload.output import OutputReader, ReadLine
from paceline.cluster.agent.upload.output_gaps import Gap, Gaps
from paceline.monitoring.files import UnfitFileError

CAP = 1 << 20
BURST, RATE = 256 << 10, 16 << 10


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixteenth of the real figures and less."""
    for module, name, value in (
        (output_gaps, "BURST_BYTES", BURST),
        (output_gaps, "SEND_BYTES_PER_SECOND", RATE),
        (output, "RESUME_BYTES", RATE),
        (output, "FINAL_BYTES", RATE // 4),
    ):
        monkeypatch.setattr(module, name, value)


GAP = re.compile(r"WARNING (\d+) bytes of output are left out here: ")


def lines(first: int, count: int) -> bytes:
    return b"".join(b"line %09d %s\n" % (number, b"x" * 84) for number in range(first, first + count))  # 100 bytes each


def read_all(reader: OutputReader, now: float, offset: int = 0, seq: int = 0, *, final: bool = True) -> list[ReadLine]:
    """As the uploader does: on and on, from where it was acknowledged."""
    found: list[ReadLine] = []
    while more := reader.read(offset, seq, 1000, now, final=final):
        found += more
        offset, seq = more[-1].end, more[-1].line.seq
    return found


def left_out(found: list[ReadLine]) -> int:
    return sum(int(match[1]) for read in found if (match := GAP.match(read.line.text)))


def whole(found: list[ReadLine]) -> int:
    return sum(len(read.line.text) + 1 for read in found if not GAP.match(read.line.text))


def test_a_flood_is_sent_at_its_rate_and_the_rest_is_told_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"")
    reader = OutputReader(path, set(), 1 << 30)
    found = read_all(reader, 0.0)
    with open(path, "ab") as file:
        for second in range(1, 6):  # 1 MB/s
            file.write(lines(second * 10_000, 10_000))
            file.flush()
            end, seq = (found[-1].end, found[-1].line.seq) if found else (0, 0)
            found += read_all(reader, float(second), end, seq, final=False)
    found += read_all(reader, 6.0, found[-1].end, found[-1].line.seq)
    assert whole(found) + left_out(found) == path.stat().st_size
    assert BURST < whole(found) < BURST + 7 * RATE
    assert found[0].line.text.startswith("line 000010000")
    assert found[-1].line.text.startswith("line 000059999")
    assert [read.line.seq for read in found] == list(range(1, len(found) + 1))
    assert all(GAP.match(read.line.text) or re.fullmatch(r"line \d{9} x{84}", read.line.text) for read in found)  # whole lines around gaps


def test_ranks_of_a_large_job_share_what_is_sent_of_it(tmp_path: Path) -> None:
    """Sixty-four that print without end had sixty-four times what one may send."""
    path = tmp_path / "output.log"
    path.write_bytes(b"")
    reader = OutputReader(path, set(), 1 << 30, ranks=4 * output_gaps.FULL_RATE_RANKS)
    read_all(reader, 0.0, final=False)
    path.write_bytes(lines(0, 50_000))
    found = read_all(reader, 5.0)
    assert whole(found) + left_out(found) == path.stat().st_size
    assert BURST // 4 < whole(found) < BURST // 4 + 6 * RATE // 4 + RATE // 4
    assert (found[0].line.text[:14], found[-1].line.text[:14]) == ("line 000000000", "line 000049999")
    (told,) = (read.line.text for read in found if GAP.match(read.line.text))
    assert f"{RATE / 4096:.3g} KiB a second are sent, of its job" in told


def test_a_rank_that_prints_little_loses_nothing_however_long_the_coordinator_was_away(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(lines(0, 10))
    reader = OutputReader(path, set(), 1 << 30)
    read_all(reader, 0.0, final=False)
    path.write_bytes(lines(0, 10_000))  # 1 MB in five minutes
    found = read_all(reader, 300.0, final=False)
    assert (len(found), left_out(found)) == (10_000, 0)


def test_what_was_there_when_the_agent_came_is_no_flood(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(lines(0, 10_000))
    assert left_out(read_all(OutputReader(path, set(), 1 << 30), 0.0, final=False)) == 0


def test_the_file_keeps_its_head_and_its_tail_within_the_cap(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.touch()
    reader = OutputReader(path, set(), CAP)
    with open(path, "ab") as file:
        for part in range(40):  # 20 MB, of which nothing is acknowledged
            file.write(lines(part * 5_000, 5_000))
            file.flush()
            reader.trim(0)
    assert path.stat().st_size == 20_000_000
    assert path.stat().st_blocks * 512 < CAP + CAP // 4 + 600_000  # the last part came before the last trim
    found = read_all(reader, 0.0)
    assert whole(found) + left_out(found) == path.stat().st_size
    assert sum(bool(GAP.match(read.line.text)) for read in found) == 1
    assert found[0].line.text.startswith("line 000000000")
    assert found[-1].line.text.startswith("line 000199999")
    assert "\0" not in "".join(read.line.text for read in found)


def test_a_new_agent_numbers_the_lines_around_a_gap_as_the_old_one_did(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"")
    reader = OutputReader(path, set(), CAP)
    sent: list[ReadLine] = []
    with open(path, "ab") as file:
        for second in range(5):
            file.write(lines(second * 10_000, 10_000))
            file.flush()
            end, seq = (sent[-1].end, sent[-1].line.seq) if sent else (0, 0)
            sent += read_all(reader, float(second), end, seq, final=False)
            reader.trim(0)
    assert sum(bool(GAP.match(read.line.text)) for read in sent) > 2
    for acknowledged in (sent[100], sent[len(sent) // 2]):
        again = read_all(OutputReader(path, set(), CAP), 100.0, acknowledged.end, acknowledged.line.seq)
        same = [read.line.text for read in sent if read.line.seq > acknowledged.line.seq]
        assert [read.line.text for read in again[: len(same)]] == same
        assert again[-1].line.text.startswith("line 000049999")


def test_lines_and_progress_bars_go_on_after_the_clock_was_set_back(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"")
    reader = OutputReader(path, set(), 1 << 30)
    read_all(reader, 1_000.0, final=False)
    path.write_bytes(lines(0, (BURST + 10 * RATE) // 100) + b"10%")
    found = read_all(reader, 1_020.0, final=False)
    for now in (500.0, 501.0):
        found += read_all(reader, now, found[-1].end, found[-1].line.seq, final=False)
    assert found[-1].line.text == "10%"
    with open(path, "ab") as file:
        file.write(b"\n" + lines(0, 10))
    after = read_all(reader, 502.0, found[-1].end, found[-1].line.seq, final=False)
    assert (len(after), left_out(after)) == (10, 0)


def test_lines_that_are_under_way_are_not_cut_away(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(lines(0, 20_000))
    reader = OutputReader(path, set(), CAP)
    first = read_all(reader, 0.0, final=False)[:15_000]
    reader.trim(0)  # sent, and not acknowledged: an answer was lost
    again = read_all(reader, 1.0, final=False)
    assert [read.line.text for read in again[:15_000]] == [read.line.text for read in first]


def test_a_file_system_that_cannot_cut_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(output, "punch_hole", refuse)
    path = tmp_path / "output.log"
    reader = OutputReader(path, set(), CAP)
    with open(path, "ab") as file:
        for _ in range(10):
            file.write(lines(0, 20_000))
            file.flush()
            reader.trim(0)
    assert caplog.text.count("Operation not supported") == 1


def test_gaps_are_the_same_when_they_are_read_again(tmp_path: Path) -> None:
    gaps = Gaps(tmp_path / "output.gaps")
    for gap in (Gap(10, 20, "rate"), Gap(20, 30, "rate"), Gap(50, 60, "cap"), Gap(25, 55, "cap"), Gap(5, 12, "cap")):
        gaps.add(gap)
    with open(tmp_path / "output.gaps", "ab") as file:
        file.write(b"70 8")  # torn
    again = Gaps(tmp_path / "output.gaps")
    assert gaps.behind(0) == [Gap(5, 20, "cap"), Gap(20, 60, "cap")]
    assert again.behind(0)[:2] == gaps.behind(0)
    assert [gap.start for gap, _ in itertools.pairwise([*gaps.behind(20), Gap(0, 0, "cap")])] == [20]


def test_a_pipe_in_the_place_of_its_gaps_does_not_keep_the_agent_waiting(tmp_path: Path) -> None:
    """The rank's user can put one there, and nobody reads from it."""
    path = tmp_path / "output.gaps"
    os.mkfifo(path)
    with pytest.raises(UnfitFileError):
        Gaps(path).add(Gap(0, 100, "rate"))
