"""Objects on their way to the disk: all of them, or told."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec
import pytest

from paceline.monitoring import media_recorder
from paceline.monitoring.artifacts import RankArtifact, file_of, sha256_of
from paceline.monitoring.media import MAX_OBJECT_BYTES, MediaLabel
from paceline.monitoring.media_recorder import LoggedMedia, MediaRecorder


class Told:
    """What is told of dropped objects."""

    def __init__(self) -> None:
        self.drops: list[tuple[str, str, str]] = []

    def __call__(self, what: str, count: int, reason: str, example: str) -> None:
        self.drops.append((what, reason, example))


def logged(folder: Path, step: int = 1, content: bytes = b"content", size: int = 7) -> LoggedMedia:
    return LoggedMedia(folder, step, 1.5, MediaLabel(key="val/samples", kind="images", count=1), size, lambda: content)


def notes(folder: Path) -> list[RankArtifact]:
    return [msgspec.json.decode(note.read_bytes(), type=RankArtifact) for note in sorted(folder.glob("*.note"))]


def test_objects_are_written_with_their_notes_in_the_order_in_which_they_were_logged(tmp_path: Path) -> None:
    recorder, told = MediaRecorder(Told()), Told()
    for step in range(20):
        recorder.record(logged(tmp_path / "artifacts", step, b"%d" % step))
    recorder.close()
    found = notes(tmp_path / "artifacts")
    assert [(each.first_step, each.last_step, each.kind, each.time) for each in found] == [(step, step, "media", 1.5) for step in range(20)]
    for each in found:
        assert each.media == MediaLabel(key="val/samples", kind="images", count=1)
        assert sha256_of(tmp_path / "artifacts" / each.name) == each.sha256
    assert told.drops == []


def test_what_is_too_large_is_dropped_and_told(tmp_path: Path) -> None:
    told = Told()
    recorder = MediaRecorder(told)
    recorder.record(logged(tmp_path, content=b"x" * (MAX_OBJECT_BYTES + 1)))
    recorder.record(logged(tmp_path, step=2))
    recorder.close()
    assert [each.first_step for each in notes(tmp_path)] == [2]
    ((what, reason, example),) = told.drops
    assert (what, example) == ("images", "val/samples at step 1")
    assert f"the limit is {MAX_OBJECT_BYTES:,}" in reason


def test_a_rank_has_a_limit_of_objects_and_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(media_recorder, "MAX_RANK_OBJECTS", 2)
    monkeypatch.setattr(media_recorder, "MAX_RANK_BYTES", 10)
    told = Told()
    recorder = MediaRecorder(told)
    for folder, content in (("a", b"x" * 8), ("a", b"x" * 8), ("a", b"x"), ("a", b"x"), ("b", b"x")):
        recorder.record(logged(tmp_path / folder, content=content))
    recorder.close()
    assert [len(notes(tmp_path / folder)) for folder in ("a", "b")] == [2, 1]
    assert [reason.split(":")[0] for _, reason, _ in told.drops] == [
        "this rank has logged 8 bytes of them; the limit is 10",
        "this rank has logged 2 of them, which is the limit",
    ]


def test_record_never_waits_and_tells_what_has_no_room(tmp_path: Path) -> None:
    told, gate = Told(), threading.Event()
    recorder = MediaRecorder(told)
    held = LoggedMedia(tmp_path, 0, 1.0, MediaLabel(key="k", kind="table", count=1), 5, lambda: (gate.wait(30) and b"x") or b"")
    began = time.monotonic()
    recorder.record(held)
    for step in range(1, media_recorder.QUEUE_OBJECTS + 10):
        recorder.record(logged(tmp_path, step))
    assert time.monotonic() - began < 5
    assert told.drops
    assert "faster than they can be compressed" in told.drops[0][1]
    gate.set()
    recorder.close()
    assert len(notes(tmp_path)) >= media_recorder.QUEUE_OBJECTS


def test_a_disk_that_refuses_costs_the_object_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    told = Told()
    recorder = MediaRecorder(told)
    recorder.record(logged(tmp_path / "file"))
    recorder.record(logged(tmp_path / "folder"))
    recorder.close()
    assert len(notes(tmp_path / "folder")) == 1
    assert "cannot be written" in told.drops[0][1]


def test_a_note_is_never_without_its_file(tmp_path: Path) -> None:
    recorder = MediaRecorder(Told())
    for step in range(50):
        recorder.record(logged(tmp_path, step))
        for note in tmp_path.glob("*.note"):
            assert file_of(note).exists()
    recorder.close()
