"""A spool whose head is given up: at every cut what is left is read, counted and added to as before, and the disk has the rest back."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from paceline.cluster.agent.upload import spool_head
from paceline.cluster.agent.upload.spool_head import give_up_head, start_at
from paceline.monitoring.spool import COUNTED_BYTES, HEADER_BYTES, START_BYTES, SpoolReader, SpoolStart, SpoolWriter, start_of

#: Records of many lengths, the empty one among them, over some pages of a file.
PAYLOADS = [bytes([number]) * (number * 37 % 700) for number in range(1, 61)]
ENDS = [sum(HEADER_BYTES + len(payload) for payload in PAYLOADS[:count]) for count in range(len(PAYLOADS) + 1)]


def write(path: Path, payloads: list[bytes]) -> Path:
    writer = SpoolWriter(path)
    for payload in payloads:
        writer.append(payload)
    writer.close()
    return path


def read_all(reader: SpoolReader) -> list[bytes]:
    found: list[bytes] = []
    while payloads := reader.read():
        found += payloads
    return found


@pytest.mark.parametrize("off", [-1, 0, 1])
def test_at_every_cut_the_rest_is_read_and_added_to_under_its_numbers(tmp_path: Path, off: int) -> None:
    for count, end in enumerate(ENDS):
        path = write(tmp_path / f"{count}.spool", PAYLOADS)
        gone = max((each for each, behind in enumerate(ENDS) if behind <= end + off), default=0)
        start = give_up_head(path, end + off)
        assert start == start_at(path) == (SpoolStart(gone, ENDS[gone]) if ENDS[gone] >= START_BYTES else SpoolStart())
        reader = SpoolReader(path)
        assert read_all(reader) == PAYLOADS[start.records :]
        assert (reader.records, reader.offset) == (len(PAYLOADS), ENDS[-1])
        writer = SpoolWriter(path)
        assert writer.records == len(PAYLOADS)
        writer.append(b"one more")
        writer.close()
        assert read_all(reader) == [b"one more"]


def test_cut_after_cut_and_a_writer_that_lives_through_them_all(tmp_path: Path) -> None:
    path = tmp_path / "a.spool"
    writer, written = SpoolWriter(path), list[bytes]()
    for turn in range(40):
        for payload in PAYLOADS[turn : turn + 5]:
            writer.append(payload)
            written.append(payload)
        writer.flush(durable=False)
        start = give_up_head(path, os.path.getsize(path) - 3000)
        assert read_all(SpoolReader(path)) == written[start.records :]
        assert SpoolWriter(path).records == writer.records == len(written)
    assert start.records > 100


def test_a_reader_that_is_overtaken_goes_on_behind_what_is_gone(tmp_path: Path) -> None:
    path = write(tmp_path / "a.spool", PAYLOADS)
    reader = SpoolReader(path)
    reader.offset, reader.records = ENDS[3], 3
    give_up_head(path, ENDS[40])
    assert read_all(reader) == PAYLOADS[40:]
    assert reader.records == len(PAYLOADS)


def test_the_disk_has_the_head_back_step_by_step(tmp_path: Path) -> None:
    path = write(tmp_path / "a.spool", [os.urandom(100_000)] * 200)
    before, size = path.stat().st_blocks * 512, path.stat().st_size
    starts = [give_up_head(path, size - (2 << 20)) for _ in range(8)]
    assert starts == sorted(starts)
    assert starts[0].offset <= COUNTED_BYTES
    assert 198 - (2 << 20) // 100_000 <= starts[-1].records < 200
    assert (before > 19_000_000, path.stat().st_blocks * 512 < (2 << 20) + 300_000, path.stat().st_size) == (True, True, size)


def test_a_file_system_without_holes_keeps_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(spool_head, "make_hole", refuse)
    path = write(tmp_path / "a.spool", PAYLOADS)
    with pytest.raises(OSError, match="not supported"):
        give_up_head(path, ENDS[-1])
    assert read_all(SpoolReader(path)) == PAYLOADS


def test_a_spool_that_is_written_just_now_is_left_as_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "a.spool", PAYLOADS)
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert give_up_head(path, ENDS[50]) == SpoolStart()
    assert give_up_head(path, ENDS[50]).records == 50


@pytest.mark.parametrize("end", range(START_BYTES))
def test_a_mark_that_is_no_whole_one_counts_for_nothing(end: int) -> None:
    mark = SpoolStart(7, 900).mark()
    assert start_of(mark, 900) == SpoolStart(7, 900)
    assert start_of(mark[:end], 900) == start_of(mark[:end] + b"\xaa" + mark[end + 1 :], 900) == SpoolStart()


@pytest.mark.parametrize(("start", "size"), [(SpoolStart(7, 900), 899), (SpoolStart(1 << 60, 900), 1 << 20)], ids=["beyond", "too many"])
def test_a_mark_that_cannot_be_true_counts_for_nothing(start: SpoolStart, size: int) -> None:
    """A rank can write into its spool what it likes."""
    assert start_of(start.mark(), size) == SpoolStart()


def test_what_is_no_plain_file_is_left_alone(tmp_path: Path) -> None:
    target = write(tmp_path / "a.spool", PAYLOADS)
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "missing"):
        assert start_at(tmp_path / name) == SpoolStart()
        with pytest.raises(OSError, match=r"plain file|Too many levels|No such file"):
            give_up_head(tmp_path / name, ENDS[-1])
    assert read_all(SpoolReader(target)) == PAYLOADS
