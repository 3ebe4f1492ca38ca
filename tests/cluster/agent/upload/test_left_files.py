"""What is found in a folder that belongs to code nobody has checked, and what of it is remembered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paceline.cluster.agent.upload import left_files
from paceline.cluster.agent.upload.files import ReadyFile, batches, is_place
from paceline.cluster.agent.upload.left_files import FileVersion, LeftFiles, walk
from paceline.monitoring.artifact_files import BATCH_FILES, INLINE_BYTES, MAX_DEPTH, path_refusal, printable
from tests.waiting import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "jobs" / "01JOB" / "files" / "g3.rank12"
    made.mkdir(parents=True)
    return made


def test_the_place_of_the_process_is_the_folders_name(folder: Path) -> None:
    files = LeftFiles.at(folder)
    assert files.place == ("01JOB", 3, 12)
    assert files.path_in_job("a/b") == "rank12/a/b"
    assert is_place(folder)
    for name in ("g3.rank", "g.rank1", "g3.rank1.sent", "other", "gx.rank1"):
        (folder.parent / name).mkdir()
        assert not is_place(folder.parent / name)
    (folder.parent / "g4.rank0").symlink_to(folder)
    assert not is_place(folder.parent / "g4.rank0")


def test_a_look_brings_what_the_last_one_found_unchanged(folder: Path) -> None:
    files = LeftFiles.at(folder)
    (folder / "a").write_bytes(b"a")
    assert (files.look(), files.is_finished) == ({}, False)
    (found,) = files.look().items()
    files.note(*found, kept=True)
    assert (files.look(), files.is_finished) == ({}, True)
    before = (folder / "a").stat().st_ctime_ns

    def write_later() -> bool:  # as long as before, so that only its time of change tells, which a file system counts in ticks
        (folder / "a").write_bytes(b"b")
        return (folder / "a").stat().st_ctime_ns != before

    wait_until(write_later, "the next tick of the file system's clock", seconds=30)
    assert files.look() == {}
    assert list(files.look()) == ["a"]


def test_what_was_handled_is_known_to_the_next_agent_whatever_the_journals_end_is(folder: Path) -> None:
    names = ["a", "lines\nand\ttabs", os.fsdecode(b"\xff")]
    files = LeftFiles.at(folder)
    for name in names:
        (folder / name).write_bytes(b"x")
    for name, version in files.look(at_rest=True).items():
        files.note(name, version, kept=name != "a")
    with open(files.journal, "a") as journal:
        journal.write('["torn", 1, 2')
    after = LeftFiles.at(folder)
    assert (after.look(at_rest=True), after.refused) == ({}, {"a"})


def test_links_devices_and_unfinished_files_are_not_found(folder: Path) -> None:
    (folder / "fine").mkdir()
    (folder / "fine" / "file").write_bytes(b"x")
    (folder / "link").symlink_to(folder / "fine" / "file")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    (folder / ".paceline-abc").mkdir()
    (folder / ".paceline-abc" / "file").write_bytes(b"x")
    (folder / "closed").mkdir(mode=0o000)
    assert [name for name, _ in walk(folder)] == ["fine/file"]


def test_a_look_ends_however_many_files_there_are_and_however_deep(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_files, "MOST_FILES", 10)
    for number in range(20):
        (folder / f"{number}").write_bytes(b"x")
    assert len(dict(walk(folder))) == 10
    for number in range(20):
        (folder / f"{number}").unlink()
    deep = folder
    for _ in range(MAX_DEPTH + 20):
        deep = deep / "d"
        deep.mkdir()
        (deep / "f").write_bytes(b"x")
    monkeypatch.undo()
    assert len(dict(walk(folder))) == MAX_DEPTH + 1
    monkeypatch.setattr(left_files, "MOST_ENTRIES", 5)
    assert len(dict(walk(folder))) < 5


def test_small_files_travel_in_batches_of_so_many_and_so_many_bytes(folder: Path) -> None:
    files = LeftFiles.at(folder)
    many = [ReadyFile(files, f"{number}", FileVersion(1, 0, 0, number)) for number in range(BATCH_FILES + 1)]
    assert [len(batch) for batch in batches(many)] == [BATCH_FILES, 1]
    large = [ReadyFile(files, f"{number}", FileVersion(INLINE_BYTES, 0, 0, number)) for number in range(9)]
    assert [len(batch) for batch in batches(large)] == [8, 1]
    assert batches([]) == []


def test_names_are_printable_and_say_why_they_are_refused() -> None:
    assert printable("größe ✓ 👩‍🔬.txt") == "größe ✓ 👩‍🔬.txt"
    assert printable("a\nb\x1b[31m\u202e") == "a%0Ab%1B[31m%E2%80%AE"
    assert printable(os.fsdecode(b"\xff")) == "%FF"
    assert path_refusal("rank0/a b/ü.txt") is None
    assert "1,024" in str(path_refusal("rank0/" + "x" * 1024))
    assert "32" in str(path_refusal("/".join(["a"] * 33)))
    for path in ("rank0/../x", "/x", "", "rank0//x", "./x", "rank0/a\u202eb"):
        assert path_refusal(path) is not None


@pytest.mark.timeout(20)
def test_whatever_is_in_the_place_of_the_journal_holds_nothing_up(folder: Path) -> None:
    """A pipe held up the agent, and with it its node, until somebody read from it: it is opened in the event loop."""
    (folder / "a").write_bytes(b"x")
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        files = LeftFiles.at(folder)
        make(files.journal)
        again = LeftFiles.at(folder)
        ((name, version),) = again.look(at_rest=True).items()
        again.note(name, version, kept=True)
        assert again.look(at_rest=True) == {}
        (os.rmdir if files.journal.is_dir() else os.unlink)(files.journal)


def test_a_journal_of_nonsense_is_passed_over(folder: Path) -> None:
    """A line of another form than ours ended the uploads of the files of all ranks on the node, again and again."""
    files = LeftFiles.at(folder)
    (folder / "a").write_bytes(b"x")
    ((name, version),) = files.look(at_rest=True).items()
    files.journal.write_bytes(b"5\nnull\n[[1], 2, 3, 4, 5, true]\n" + b"[" * 100_000 + b"\n\xff\n[]\n{}\n")
    files.note(name, version, kept=True)
    assert LeftFiles.at(folder).look(at_rest=True) == {}
