"""Curves from the lines that rank 0 prints, for jobs that report no curve otherwise: in bounded portions, and only once the lines have
proven themselves."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from pathlib import Path

from paceline.cluster.agent.curves.printed import LONGEST_LINE, PrintedStep, read_line
from paceline.cluster.agent.curves.printed_steps import GoesBackError, StepCounter
from paceline.cluster.agent.curves.rank_curves import RankCurves
from paceline.monitoring.event_reader import Scalars
from paceline.monitoring.files import open_file
from paceline.monitoring.names import our_name

READ_BYTES = 256 << 10  # in one poll
#: Further behind than this the reader leaves out what is between.
MOST_BEHIND = 8 << 20
#: Lines with growing steps before the first is believed, and how long event files and `paceline.log` have to speak first.
LEAST_LINES = 3
HOLD_SECONDS = 10.0
#: Steps that wait to be believed (of more, every second one is left out), that are told in one poll, and of one generation in all.
MOST_HELD, MOST_OF_A_POLL, MOST_TOLD = 2_000, 200, 200_000
#: Lines whose step is before that of an earlier line, before all of them are doubted.
MOST_BACKWARDS = 3
HOW = "read from printed lines"
_ENDS = re.compile(rb"[\r\n]")


class PrintedLogTail:
    """The lines of a file that grows. The file may have holes, and may be anything that a script makes of it."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0
        self._begun, self._is_cut = b"", False

    def read(self) -> list[str]:
        """The lines with a loss in them that were added since the last call. Raises OSError."""
        with open_file(self._path) as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._offset or size - self._offset > MOST_BEHIND:
                self._offset, self._begun, self._is_cut = max(0, size - READ_BYTES), b"", size > READ_BYTES
            file.seek(self._offset)
            content = file.read(READ_BYTES)
        self._offset += len(content)
        *lines, self._begun = _ENDS.split(self._begun + content)
        if self._is_cut and lines:
            lines, self._is_cut = lines[1:], False
        if len(self._begun) > 4 * LONGEST_LINE:
            self._begun, self._is_cut = b"", True
        return [line.decode(errors="replace") for line in lines if len(line) <= 4 * LONGEST_LINE and b"loss" in line.lower()]

    @property
    def is_at_end(self) -> bool:
        try:
            return os.stat(self._path, follow_symlinks=False).st_size <= self._offset
        except OSError:
            return True


class PrintedCurves:
    """Reads curves from the output of rank 0 in one generation. Once it has ended it stays ended."""

    def __init__(self, curves: RankCurves, output: Path) -> None:
        self._curves, self._tail, self._output = curves, PrintedLogTail(output), output
        self._held: list[tuple[float, int, PrintedStep]] = []  # when it was read, the step of the whole run, and the line
        self._counter = StepCounter()
        self._is_telling = curves.claim_printed(HOW)  # an earlier reader of this generation has begun
        self._backwards, self._reported = 0, 0
        self.is_over = False

    def poll(self, now: float, *, others_report: bool, ended: bool) -> bool:
        """Read a little. Returns whether there is more to read. `others_report`: event files or `paceline.log` give curves, which ends
        this reader for good."""
        if self.is_over:
            return False
        if others_report:
            self._end()
            return False
        try:
            lines = self._tail.read()
        except OSError:  # gone, or made unreadable by the script: what it told stays
            self._end()
            return False
        self._take(now, (found for line in lines if (found := read_line(line))))
        if not self._is_telling and self._is_proven(now, ended):
            self._is_telling = True
            self._curves.report_printed(str(self._output), HOW)
        if self._is_telling:
            self._report_step()
        return not self.is_over and not self._tail.is_at_end

    def _take(self, now: float, steps: Iterable[PrintedStep]) -> None:
        for count, found in enumerate(steps):
            if found.step is not None and self._counter.counts_epochs and not self._is_telling:
                self._counter, self._held = StepCounter(), []  # what was read so far were summaries beside the steps
            try:
                step = self._counter.step_of(found)
            except GoesBackError:
                self._backwards += 1
                if self._backwards >= MOST_BACKWARDS or not self._is_telling:
                    return self._end("their steps go back, as of a loop that counts anew in each epoch: use paceline.log")
                continue
            if step is None:
                continue
            if count >= MOST_OF_A_POLL:
                self._curves.warn(
                    "printed numbers", f"over {MOST_OF_A_POLL} lines a second: print fewer, or use paceline.log", f"step {step}"
                )
                continue
            self._held.append((now, step, found))
        if len(self._held) > MOST_HELD:
            del self._held[1::2]
            why = (
                f"over {MOST_HELD} of them before their steps were certain: print 'Step [20/600]' beside 'Epoch [1/5]', or use paceline.log"
            )
            self._curves.warn("printed numbers", why, f"step {self._counter.newest}")
        return None

    def _is_proven(self, now: float, ended: bool) -> bool:
        """Whether enough lines were read to trust their steps. A loss that is NaN or infinite is told before the first epoch has ended."""
        if not self._has_enough:
            return False
        is_held_long = now - self._held[0][0] >= HOLD_SECONDS
        return ended or (is_held_long and (self._counter.is_certain or (self._counter.is_from_start and self._has_bad_loss)))

    @property
    def _has_enough(self) -> bool:
        return len({step for _, step, _ in self._held}) >= LEAST_LINES

    @property
    def _has_bad_loss(self) -> bool:
        return any(our_name(name) == "loss" and not math.isfinite(value) for _, _, found in self._held for name, value in found.values)

    def _report_step(self) -> None:
        self._curves.add(Scalars(step, moment, list(found.values)) for moment, step, found in self._held)
        self._reported += len(self._held)
        self._held = []
        if self._reported > MOST_TOLD:
            self._end(f"over {MOST_TOLD} of them: use paceline.log")

    def _end(self, why: str = "") -> None:
        """Stop reading. `why` goes into the job's history where some of the lines were reported, or would have been."""
        if why and (self._is_telling or self._has_enough):
            self._curves.warn("printed numbers", why, f"step {self._counter.newest}")
        self.is_over = True
        if not self._is_telling:
            self._held = []
