"""The step of a whole run, out of the numbers that printed lines give: of steps that go on, of steps that begin anew in each epoch, and of
lines that name an epoch alone. Pure."""

from __future__ import annotations

from paceline.cluster.agent.curves.printed import PrintedStep


class GoesBackError(Exception):
    """The steps of the lines go back, and nothing in the lines says how many belong to an epoch."""


class StepCounter:
    """Counts the steps of one run, line by line.

    Steps go on over the epochs until one goes back where an epoch begins. Then they are those of an epoch, and the lines must say of how many:
    `Epoch [2/5], Step [100/600]`. Epochs count from 0 or from 1, whichever the first line says; lines of a run that was resumed in another epoch
    do not say it, and are not counted. Where no line has a step, an epoch is one.
    """

    def __init__(self) -> None:
        self.newest = -1  # of the whole run
        self._first: PrintedStep | None = None
        self._before: PrintedStep | None = None
        self._is_constant = True  # all lines have the same step, as those that say at the end of an epoch how many it had
        self._by_epoch = False  # steps begin anew in each epoch

    @property
    def counts_epochs(self) -> bool:
        return self._first is not None and self._first.step is None

    @property
    def is_from_start(self) -> bool:
        """Whether the lines begin in the run's first epoch, whose steps are those of the run."""
        return self._first is not None and self._first.epoch in (0, 1)

    @property
    def is_certain(self) -> bool:
        """Whether the steps so far are known to be those of the whole run: no epoch is named, a second one has begun, or the lines of the
        first one say of how many steps it has. Else they may begin anew in the next epoch, which only shows there."""
        first, before = self._first, self._before
        if first is None or before is None:
            return False
        says_length = first.of is not None and before.of is not None
        return before.epoch is None or before.epoch != first.epoch or (self.is_from_start and says_length)

    def step_of(self, line: PrintedStep) -> int | None:
        """Return the step of the whole run; None for a line without a step beside others with one, or the other way round. Raises
        GoesBackError."""
        first = self._first or line
        if (first.step is None) != (line.step is None):
            return None
        step = int(line.epoch or 0) if line.step is None else self._step(line, line.step, first)
        self._first, self._before = first, line
        if step < self.newest:
            raise GoesBackError
        self.newest = step
        return step

    def _step(self, line: PrintedStep, step: int, first: PrintedStep) -> int:
        before = first.step if self._before is None else self._before.step
        self._is_constant &= step == first.step
        if self._before is not None and line.epoch != self._before.epoch and before is not None:
            self._by_epoch |= step < before or (step == before and (self._is_constant or line.of is not None))
        if not self._by_epoch:
            return step
        length = line.of or (step if self._is_constant else None)
        if length is None or line.epoch is None or first.epoch not in (0, 1) or step > length:
            raise GoesBackError
        return int(line.epoch - first.epoch) * length + step
