"""Logged images, histograms and tables to the rank's folder without the loop ever waiting: a thread compresses and writes them.

What does not fit is dropped, counted and told once, as metrics are. Each object is a file with its note (`monitoring.artifacts`): written
whole, or not at all, whenever the process is killed. Nothing is flushed to the disk: that would take longer than the rest, and a machine that
loses its power loses the last objects only.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from paceline.monitoring.artifacts import RankArtifact, note_of
from paceline.monitoring.media import MAX_OBJECT_BYTES, MAX_RANK_BYTES, MAX_RANK_OBJECTS, MediaLabel

#: Bytes of objects, as they were logged, that wait for the thread.
QUEUE_BYTES = 256 << 20
QUEUE_OBJECTS = 2_000
FLUSH_TIMEOUT_SECONDS = 10.0
#: At the end of the process, since the last object that was written.
CLOSE_TIMEOUT_SECONDS = 10.0

#: Receives what is dropped: (what, count, reason, example).
OnDropped = Callable[[str, int, str, str], None]


@dataclass(frozen=True)
class LoggedMedia:
    """One object on its way. `size`: about how many bytes wait; `content` is called in the thread."""

    folder: Path
    step: int
    time: float
    label: MediaLabel
    size: int
    content: Callable[[], bytes]


class MediaRecorder:
    """Writes logged objects in a thread of its own. `on_dropped` tells once for each kind of loss."""

    def __init__(self, on_dropped: OnDropped) -> None:
        self._on_dropped = on_dropped
        self._queue: deque[LoggedMedia] = deque()
        self._waiting = self._done = 0  # bytes; objects
        self._written: dict[Path, tuple[int, int]] = {}  # objects and bytes, by the folder of a generation
        self._change = threading.Condition()
        self._busy = self._closed = False
        self._thread = threading.Thread(target=self._run, name="media-recorder", daemon=True)
        self._thread.start()

    def record(self, logged: LoggedMedia) -> None:
        """Queue an object; one for which there is no room is dropped."""
        with self._change:
            if self._closed:
                return
            full = len(self._queue) >= QUEUE_OBJECTS or (bool(self._queue) and self._waiting + logged.size > QUEUE_BYTES)
            if not full:
                self._queue.append(logged)
                self._waiting += logged.size
                self._change.notify_all()
        if full:
            self._drop(logged, "logged faster than they can be compressed and written: log fewer, or less often")

    def flush(self, seconds: float = FLUSH_TIMEOUT_SECONDS) -> None:
        """Wait until what is queued is on the disk; a stuck disk is waited for `seconds` only."""
        with self._change:
            self._change.wait_for(lambda: not self._queue and not self._busy, seconds)

    def close(self) -> None:
        """Write what is queued, durably. Harmless the second time."""
        with self._change:
            while (self._queue or self._busy) and self._wait_for_one():  # as long as the disk takes something
                pass
            self._closed, left = True, len(self._queue)
            self._queue.clear()
            self._change.notify_all()
        if left:
            print(
                f"WARNING {left} logged images, histograms or tables are lost: the disk took none before the end",
                file=sys.stderr,
                flush=True,
            )

    def _wait_for_one(self) -> bool:
        """Wait until one more object is done with. Returns False after CLOSE_TIMEOUT_SECONDS."""
        before = self._done
        return self._change.wait_for(lambda: self._done != before, CLOSE_TIMEOUT_SECONDS)

    # -- the thread

    def _run(self) -> None:
        while (logged := self._next()) is not None:
            try:
                self._write(logged)
            except Exception as error:  # noqa: BLE001 - whatever it is, training and the other objects go on
                self._drop(logged, f"cannot be written: {type(error).__name__}: {error}")
            finally:
                with self._change:
                    self._busy = False
                    self._done += 1
                    self._waiting -= logged.size
                    self._change.notify_all()

    def _next(self) -> LoggedMedia | None:
        with self._change:
            self._change.wait_for(lambda: self._queue or self._closed)
            if not self._queue:
                return None
            self._busy = True
            return self._queue.popleft()

    def _write(self, logged: LoggedMedia) -> None:
        objects, stored = self._written.get(logged.folder, (0, 0))
        content = logged.content()
        if reason := _why_not(len(content), objects, stored):
            self._drop(logged, reason)
            return
        file = logged.folder / f"media-{time.time_ns():020d}-{secrets.token_hex(4)}"
        note, part = note_of(file), file.with_name(f"{file.name}.part")
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            file.write_bytes(content)
            part.write_bytes(msgspec.json.encode(_artifact(file.name, logged, content)))
            part.replace(note)
        except OSError:
            part.unlink(missing_ok=True)
            file.unlink(missing_ok=True)
            raise
        self._written[logged.folder] = (objects + 1, stored + len(content))

    def _drop(self, logged: LoggedMedia, reason: str) -> None:
        noun = {"images": "images", "histogram": "histograms", "table": "tables"}[logged.label.kind]
        self._on_dropped(noun, 1, reason, f"{logged.label.key} at step {logged.step}")


def _why_not(size: int, objects: int, stored: int) -> str | None:
    if size > MAX_OBJECT_BYTES:
        return f"{size:,} bytes, compressed; the limit is {MAX_OBJECT_BYTES:,} for one key at one step: log smaller or fewer ones"
    if objects >= MAX_RANK_OBJECTS:
        return f"this rank has logged {MAX_RANK_OBJECTS:,} of them, which is the limit: log less often"
    if stored + size > MAX_RANK_BYTES:
        return f"this rank has logged {stored:,} bytes of them; the limit is {MAX_RANK_BYTES:,}: log smaller ones, or less often"
    return None


def _artifact(name: str, logged: LoggedMedia, content: bytes) -> RankArtifact:
    return RankArtifact(
        name=name,
        kind="media",
        first_step=logged.step,
        last_step=logged.step,
        time=logged.time,
        bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        media=logged.label,
    )
