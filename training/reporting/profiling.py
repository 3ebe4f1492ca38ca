"""Traces of single steps by torch.profiler, asked for in the spec or while the job runs, left as artifacts in the rank's folder.

A trace begins one step early, with the profiler switched on and nothing kept (what is slow the first time is not what was asked for). Writing
it goes on in a thread. Whatever goes wrong with it is told in the artifact's note, and never ends training.
"""

from __future__ import annotations

import gzip
import shutil
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from torch.profiler import ProfilerActivity, profile, schedule

from paceline.monitoring.artifacts import MAX_ARTIFACT_BYTES, RankArtifact, leave_note, sha256_of
from paceline.training.link import RankPlace, TraceRequest
from paceline.training.schema.profile_window import ProfileWindow

WARM_UP_STEPS = 1
#: How long a rank that has done its work waits for a trace that is being written.
WRITE_TIMEOUT_SECONDS = 30.0
_COMPRESSION_LEVEL = 5


@dataclass(frozen=True)
class TraceWindow:
    first_step: int
    steps: int
    request: str | None  # None: the spec's

    @property
    def last_step(self) -> int:
        return self.first_step + self.steps - 1

    @property
    def name(self) -> str:
        return f"trace-{self.request or 'spec'}-steps-{self.first_step}-{self.last_step}.json.gz"


class TracedRank(Protocol):
    """Interface of the rank whose steps are traced."""

    @property
    def profile_wanted(self) -> TraceRequest | None:
        """The latest request for a trace made while the job runs."""

    def leave_step(self) -> None:
        """Called before something that takes a while."""


class Profiling:
    """Traces the steps of one rank in one generation, on request."""

    def __init__(self, spec: ProfileWindow | None, world: RankPlace, folder: Path, rank: TracedRank) -> None:
        self._spec = spec if spec is not None and world.rank in spec.ranks else None
        self._device, self._folder, self._rank = world.device, folder, rank
        heard = rank.profile_wanted
        self._served = heard.id if heard is not None else None  # what was asked of an earlier generation ended with it
        self._window: TraceWindow | None = None
        self._profiler: profile | None = None
        self._writing: list[threading.Thread] = []

    def between(self, step: int) -> None:
        """`step` is committed, the next has not begun. Called by the training thread after every step."""
        try:
            if self._window is None:
                self._begin_if_due(step)
            elif self._profiler is not None:
                self._advance(self._window, self._profiler, step)
        except Exception as error:  # noqa: BLE001 - whatever torch or the driver raise: training goes on without a trace
            self._give_up(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """End the generation's tracing: an unfinished trace is given up. A trace being written is not waited for: others wait for this rank."""
        if self._window is not None:
            self._give_up(f"training ended, or its ranks went apart, before step {self._window.last_step} was done; ask again")

    def wait(self) -> None:
        """Wait until traces are on disk: the process ends next, and with it the threads that write."""
        deadline = time.monotonic() + WRITE_TIMEOUT_SECONDS
        for thread in self._writing:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _begin_if_due(self, step: int) -> None:
        window = self._wanted(step)
        if window is None:
            return
        self._window, self._served = window, window.request or self._served
        self._rank.leave_step()
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if self._device == "cuda" else [])
        self._profiler = profile(activities=activities, schedule=schedule(wait=0, warmup=WARM_UP_STEPS, active=window.steps, repeat=1))
        self._profiler.start()

    def _advance(self, window: TraceWindow, profiler: profile, step: int) -> None:
        if step < window.last_step:
            profiler.step()
            return
        self._rank.leave_step()
        profiler.step()  # takes in what was collected
        self._finish(window, profiler)

    def _wanted(self, step: int) -> TraceWindow | None:
        first = step + 1 + WARM_UP_STEPS
        if self._spec is not None and self._spec.first_step == first:
            return TraceWindow(first, self._spec.steps, None)
        request = self._rank.profile_wanted
        if request is None or request.id == self._served:
            return None
        return TraceWindow(first, request.steps, request.id)

    def _finish(self, window: TraceWindow, profiler: profile) -> None:
        profiler.stop()
        self._window = self._profiler = None
        thread = threading.Thread(target=write_trace, args=(window, profiler, self._folder), name="trace-writer", daemon=True)
        self._writing = [*(each for each in self._writing if each.is_alive()), thread]
        thread.start()

    def _give_up(self, why: str) -> None:
        window, profiler = self._window, self._profiler
        self._window = self._profiler = None
        try:
            if profiler is not None:
                profiler.stop()
        except Exception as error:  # noqa: BLE001 - it is given up already
            why = f"{why} ({type(error).__name__} while stopping: {error})"
        if window is not None:
            leave_error(window, self._folder, why)


def write_trace(window: TraceWindow, profiler: profile, folder: Path) -> None:
    """Write the trace, compressed, in Chrome's format, and the note that offers it; runs in a thread of its own."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / window.name
        _export(profiler, file)
        size = file.stat().st_size
        if size > MAX_ARTIFACT_BYTES:
            file.unlink()
            leave_error(window, folder, f"the trace has {size:,} bytes; the limit is {MAX_ARTIFACT_BYTES:,}: ask for fewer steps")
            return
        leave_note(folder, note_for(window, size, sha256_of(file)))
    except Exception as error:  # noqa: BLE001 - a full disk, or whatever torch raises: training goes on
        leave_error(window, folder, f"{type(error).__name__}: {error}")


def _export(profiler: profile, file: Path) -> None:
    plain = file.with_suffix(".tmp")
    try:
        profiler.export_chrome_trace(str(plain))
        with open(plain, "rb") as source, gzip.open(file, "wb", compresslevel=_COMPRESSION_LEVEL) as target:
            shutil.copyfileobj(source, target, 1 << 20)
    finally:
        plain.unlink(missing_ok=True)


def note_for(window: TraceWindow, size: int = 0, sha256: str = "", error: str | None = None) -> RankArtifact:
    return RankArtifact(
        name=window.name,
        kind="trace",
        first_step=window.first_step,
        last_step=window.last_step,
        time=time.time(),
        request=window.request,
        bytes=size,
        sha256=sha256,
        error=error,
    )


def leave_error(window: TraceWindow, folder: Path, why: str) -> None:
    """Report in the rank's output and, where the disk allows it, to the user who asked for the trace."""
    print(f"WARNING no trace of steps {window.first_step} to {window.last_step}: {why}", file=sys.stderr, flush=True)
    try:
        leave_note(folder, note_for(window, error=why))
    except OSError as error:
        print(f"WARNING nor can that be noted: {error}", file=sys.stderr, flush=True)
