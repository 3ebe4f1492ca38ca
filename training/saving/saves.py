"""The saves of one generation: one at a time, begun after a step, written behind the steps that follow, and what is said of them.

A save that is due while another is under way waits for it, and so does whatever ends the run or the generation well; all of that is its stall.
What breaks off with its generation is made up for after the first step of the next (`TrainState.save_owed`): by then a step is not saved
that was committed while it was written, but the one that training has come to.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from training.errors import CheckpointSaveError
from training.reporting.telemetry import Telemetry
from training.saving.draft import Draft, draft
from training.saving.manifest import Committed
from training.saving.under_way import UnderWay
from training.saving.vault import Vault
from training.saving.writers import Writer
from training.state import StepReport, TrainState

#: Steps with which those are compared that run while a save is written.
COMPARED_STEPS = 32
#: Fewer say nothing of what is usual.
ENOUGH_STEPS = 4


@dataclass
class Cost:
    """Of one save to this rank's training thread. Seconds."""

    began: float  # monotonic
    usual: float | None = None  # of a step while nothing is written
    stall: float = 0.0
    steps: list[float] = field(default_factory=list)  # while it was written
    is_overdue: bool = False

    @property
    def slowdown(self) -> float | None:
        """How many times as long steps take meanwhile; None where that cannot be told."""
        return statistics.fmean(self.steps) / self.usual if self.steps and self.usual else None


class Saves:
    def __init__(self, vault: Vault, state: TrainState, telemetry: Telemetry, writer: Writer) -> None:
        self._vault, self._state, self._telemetry, self._writer = vault, state, telemetry, writer
        self.saved: int | None = None  # the newest step of which this generation has a checkpoint
        self._under_way: UnderWay | None = None
        self._cost = Cost(0.0)
        self._usual: deque[float] = deque(maxlen=COMPARED_STEPS)

    @property
    def owed(self) -> bool:
        """One broke off with an earlier generation."""
        return self._state.save_owed and self._under_way is None

    @property
    def work_is_done(self) -> bool:
        """This rank has done its part of what is under way: once all have, they `advance`."""
        return self._under_way is not None and self._under_way.work_is_done

    def begin(self, metrics: dict[str, float], *, required: bool, since: float) -> None:
        """By all ranks together, while nothing is under way; training waits `since` then (monotonic). A save that fails is reported; it raises
        CheckpointSaveError only where nothing would be left of the work."""
        self._cost = Cost(since, statistics.median(self._usual) if len(self._usual) >= ENOUGH_STEPS else None)
        try:
            with self._stalling(since):
                self._under_way = UnderWay(self._vault.group, self._draft(metrics), self._writer)
        except CheckpointSaveError as error:
            self._failed(self._state.step, error)
            if required:
                raise
            return
        self._state.save_owed = True
        if required or self._writer.waits:
            self.finish(required=required)

    def _draft(self, metrics: dict[str, float]) -> Draft:
        """Once it is made, training may go on."""
        return draft(self._vault, self._state, metrics, self._writer.take)

    def after_step(self, report: StepReport) -> None:
        """By all ranks together, of one that all have committed."""
        if self._under_way is None:
            self._usual.append(report.seconds)
            return
        if not self._under_way.is_written:
            self._cost.steps.append(report.seconds)
        if report.written:
            self._advance(self._under_way)
        else:
            self._complain(self._under_way)

    def close(self) -> None:
        self._writer.close()

    def finish(self, *, required: bool = False) -> None:
        """By all ranks together: wait for what is under way."""
        while self._under_way is not None:
            self._advance(self._under_way, required=required)

    def _advance(self, under_way: UnderWay, *, required: bool = False) -> None:
        try:
            with self._stalling(time.monotonic()):
                committed = under_way.advance()
        except CheckpointSaveError as error:
            self._end(under_way)
            self._failed(under_way.step, error)
            if required:
                raise
            return
        if committed is not None:
            self._end(under_way)
            self._tell(committed, under_way.write_seconds)

    @contextlib.contextmanager
    def _stalling(self, since: float) -> Iterator[None]:
        self._telemetry.activity.enter("save", self._state.step)
        try:
            yield
        finally:
            self._cost.stall += time.monotonic() - since

    def _end(self, under_way: UnderWay) -> None:
        self._under_way, self._state.save_owed = None, False
        self._telemetry.activity.pace.saved(self._cost.stall + under_way.write_seconds)

    def _tell(self, committed: Committed, write_seconds: float) -> None:
        cost, self.saved = self._cost, committed.manifest.step
        seconds = {"stall_seconds": cost.stall, "write_seconds": write_seconds, "slowdown": cost.slowdown}
        self._telemetry.event("checkpoint_committed", **committed.announcement, **seconds)
        slower = f", steps meanwhile x {cost.slowdown:.2f}" if cost.slowdown is not None else ""
        self._telemetry.say(
            f"checkpoint {committed.directory.name} committed, {committed.manifest.bytes / 1e6:.1f} MB: training waited {cost.stall:.3f} s, "
            f"written in {write_seconds:.3f} s{slower}"
        )

    def _failed(self, step: int, error: CheckpointSaveError) -> None:
        self._telemetry.event("checkpoint_failed", step=step, reason=str(error))
        self._telemetry.say(f"ERROR checkpoint of step {step} failed: {error}")

    def _complain(self, under_way: UnderWay) -> None:
        """A disk that hangs shows here first. Whoever waits for it later is watched as for any save."""
        limits, seconds = self._telemetry.activity.pace.limits("save"), time.monotonic() - self._cost.began
        if limits is None or seconds < limits.stall or self._cost.is_overdue:
            return
        self._cost.is_overdue = True
        self._telemetry.say(
            f"WARNING checkpoint of step {under_way.step} is not written by all ranks after {seconds:.0f} s, longer than the {limits.stall:.0f} s "
            "that it should take at most: a disk may hang. The next save will wait for it"
        )
