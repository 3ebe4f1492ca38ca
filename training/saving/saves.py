"""The saves of one generation: one at a time, begun after a step, written behind the steps that follow, and what is said of them.

A save that is due while another is under way waits for it, and so does whatever ends the run or the generation well; all of that is its stall.
What breaks off with its generation is made up for after the first step of the next (`TrainState.save_unfinished`): by then a step is not saved
that was committed while it was written, but the one that training has come to.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from paceline.monitoring.points import EventKind
from paceline.training.errors import CheckpointSaveError, StateChangedError
from paceline.training.saving.checkpoint_directory import CheckpointDirectory
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.pending_save import PendingSave
from paceline.training.saving.uncommitted import UncommittedCheckpoint, snapshot_state
from paceline.training.saving.writers import CheckpointWriter
from paceline.training.state import StepReport, TrainState
from paceline.training.timing.activity import Activity

#: Steps with which those are compared that run while a save is written.
COMPARED_STEPS = 32
#: Fewer say nothing of what is usual.
ENOUGH_STEPS = 4


@dataclass
class SaveCost:
    """Cost of one save to this rank's training thread, in seconds."""

    began: float  # monotonic
    usual: float | None = None  # of a step while nothing is written
    stall: float = 0.0
    steps: list[float] = field(default_factory=list)  # while it was written
    is_overdue: bool = False

    @property
    def slowdown(self) -> float | None:
        """Duration of a step during the save over its usual duration; None if unknown."""
        return statistics.fmean(self.steps) / self.usual if self.steps and self.usual else None


class Reporter(Protocol):
    """Interface to which saves are reported; `Telemetry` has it."""

    @property
    def activity(self) -> Activity: ...

    def event(self, kind: EventKind, **data: Any) -> None: ...

    def log(self, text: str) -> None: ...

    def flush(self) -> None:
        """Wait until what has been recorded outlives this process."""
        ...


class Saves:
    def __init__(self, checkpoints: CheckpointDirectory, state: TrainState, telemetry: Reporter, writer: CheckpointWriter) -> None:
        self._checkpoints, self._state, self._telemetry, self._writer = checkpoints, state, telemetry, writer
        self.saved: int | None = None  # the newest step of which this generation has a checkpoint
        self._under_way: PendingSave | None = None
        self._cost = SaveCost(0.0)
        self._usual: deque[float] = deque(maxlen=COMPARED_STEPS)
        self._agrees = False  # all ranks have a plan of their parts, and their last save became a checkpoint

    @property
    def unfinished(self) -> bool:
        """True if a save of an earlier generation broke off and has to be made up for."""
        return self._state.save_unfinished and self._under_way is None

    @property
    def outcome_bytes(self) -> int | None:
        """Size of what this rank has to tell of its work for the pending save; None while it is at work, or none is pending. Once all ranks
        have done theirs, the save advances."""
        return None if self._under_way is None else self._under_way.outcome_bytes

    def begin(self, metrics: dict[str, float], *, required: bool, since: float) -> None:
        """Begin a save. Collective, while none is pending; training has waited since `since` (monotonic seconds).

        A failed save is reported. Raises CheckpointSaveError only if `required`: where work would be lost.
        """
        self._cost = SaveCost(since, statistics.median(self._usual) if len(self._usual) >= ENOUGH_STEPS else None)
        try:
            with self._stalling(since):
                taken = self._snapshot(metrics, agree=required or not self._agrees)
                # A rank that goes on from the checkpoint does not report again what led to it.
                self._under_way = PendingSave(self._checkpoints.group, taken, self._writer, first=self._telemetry.flush)
        except CheckpointSaveError as error:
            self._failed(self._state.step, error)
            self._state.save_unfinished = False  # it is told; the next one that is due tries again, not each step
            if required:
                raise
            return
        self._state.save_unfinished = True
        if required or self._writer.waits:
            self.finish(required=required)

    def _snapshot(self, metrics: dict[str, float], *, agree: bool) -> UncommittedCheckpoint:
        """Snapshot the state. Once this returns, training may go on."""
        return snapshot_state(self._checkpoints, self._state, metrics, self._writer.snapshot, agree=agree)

    def after_step(self, report: StepReport) -> None:
        """Advance the pending save after a step that all ranks have committed. Collective."""
        if self._under_way is None:
            self._usual.append(report.seconds)
            return
        if not self._under_way.is_written:
            self._cost.steps.append(report.seconds)
        if report.outcomes is not None:
            self._advance(self._under_way, partial(self._under_way.advance_behind_steps, report.outcomes))
        else:
            self._warn_if_overdue(self._under_way)

    def close(self) -> None:
        self._writer.close()

    def finish(self, *, required: bool = False) -> None:
        """Wait for the pending save. Collective. Raises CheckpointSaveError if it fails and is `required`."""
        while self._under_way is not None:
            self._advance(self._under_way, self._under_way.advance, required=required)

    def _advance(self, under_way: PendingSave, go_on: Callable[[], CommittedCheckpoint | None], *, required: bool = False) -> None:
        try:
            with self._stalling(time.monotonic()):
                committed = go_on()
        except StateChangedError:
            self._under_way, self._agrees = None, False  # made up for after the next step
            return
        except CheckpointSaveError as error:
            self._end(under_way)
            self._failed(under_way.step, error)
            if required:
                raise
            return
        if committed is not None:
            self._agrees = True
            self._end(under_way)
            self._report(committed, under_way.write_seconds)

    @contextlib.contextmanager
    def _stalling(self, since: float) -> Iterator[None]:
        self._telemetry.activity.enter("save", self._state.step)
        try:
            yield
        finally:
            self._cost.stall += time.monotonic() - since

    def _end(self, under_way: PendingSave) -> None:
        self._under_way, self._state.save_unfinished = None, False
        self._telemetry.activity.times.saved(self._cost.stall + under_way.write_seconds)

    def _report(self, committed: CommittedCheckpoint, write_seconds: float) -> None:
        cost, self.saved = self._cost, committed.manifest.step
        seconds = {"stall_seconds": cost.stall, "write_seconds": write_seconds, "slowdown": cost.slowdown}
        self._telemetry.event("checkpoint_committed", **committed.announcement, **seconds)
        slower = f", steps meanwhile x {cost.slowdown:.2f}" if cost.slowdown is not None else ""
        self._telemetry.log(
            f"checkpoint {committed.directory.name} committed, {committed.manifest.bytes / 1e6:.1f} MB: training waited {cost.stall:.3f} s, "
            f"written in {write_seconds:.3f} s{slower}"
        )

    def _failed(self, step: int, error: CheckpointSaveError) -> None:
        self._agrees = False
        self._telemetry.event("checkpoint_failed", step=step, reason=str(error))
        self._telemetry.log(f"ERROR checkpoint of step {step} failed: {error}")

    def _warn_if_overdue(self, under_way: PendingSave) -> None:
        """Warn of a save that takes too long: a disk that hangs shows here first. A later wait for it is watched as any save is."""
        limits, seconds = self._telemetry.activity.times.limits("save"), time.monotonic() - self._cost.began
        if limits is None or seconds < limits.stall or self._cost.is_overdue:
            return
        self._cost.is_overdue = True
        self._telemetry.log(
            f"WARNING checkpoint of step {under_way.step} is not written by all ranks after {seconds:.0f} s, longer than the {limits.stall:.0f} s "
            "that it should take at most: a disk may hang. The next save will wait for it"
        )
