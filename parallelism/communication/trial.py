"""Decide by measurement how gradients are summed: the default first, then what a prediction says is faster, each for a few steps. Pure.

Every rank counts the same steps with the same losses, and agrees on times at the end of each round: so all ranks decide alike, without a leader. What
was chosen is watched for as long as the job runs: where steps get slower than the default's were, the default is timed again, and where the loss of a
choice that leaves something out does not hold up, that choice is given up for good: where it rises, or falls more slowly than in a window by the default.
On other machines, or with more or fewer ranks, another trial begins, which inherits what was given up.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from paceline.parallelism.communication.choices import WORTH, ReductionChoice
from paceline.parallelism.communication.loss_fall import SlowerFall, slower_fall
from paceline.parallelism.communication.loss_level import LossLevel
from paceline.parallelism.communication.sum_cost import Links

#: Steps by one choice: the first ones are not counted, since connections, memory and compiled code are new.
WARM_UP, TIMED = 2, 6
#: Choices that are timed beside the default, and how far their prediction may be behind the best one's: predictions are that good, or less.
MOST_TIMED, NEAR = 4, 1.5
#: The share of the default's time below which a choice is faster for certain.
CLEAR = 0.5
#: Steps of a window in which a choice is watched.
WINDOW = 32

#: The machines of the ranks that sum gradients with each other, of each group of them. Two ranks of one machine have it twice.
Machines = Sequence[Sequence[str]]
Why = Literal["nothing_to_gain", "not_faster", "faster", "no_longer_faster", "loss"]


@dataclass(frozen=True)
class StepTimes:
    """Medians of one rank over a round of steps."""

    seconds: float
    waited: float  # for the network, while nothing was computed


@dataclass(frozen=True)
class Verdict:
    """A decision, with its evidence. Seconds are of a step."""

    taken: ReductionChoice
    why: Why
    options: Sequence[ReductionChoice]  # all that there are, the default first
    measured: Mapping[ReductionChoice, float]  # seconds of those that were tried, the default first
    predicted: Mapping[ReductionChoice, float]
    waited: float  # of the default's step: exposed communication
    links: Links
    before: ReductionChoice | None = None  # what was given up
    slower: SlowerFall | None = None  # why, where its loss fell and did so too slowly
    has_buckets: bool = False  # other sizes of buckets are among the ways


@dataclass
class CommunicationTrial:
    """The choice of one job. It outlives generations, and is the same on every rank."""

    sums: Mapping[ReductionChoice, float]  # predicted seconds of a step's sums, the default first
    dense_steps: int = 0  # first steps of a job that are summed exactly: nothing else is timed before
    machines: Machines = ()  # that times and predictions are of
    links: Links = field(default_factory=Links)
    bucket_sizes: Sequence[float] = ()  # MiB, to try with the best choice
    measured: dict[ReductionChoice, float] = field(default_factory=dict)
    predicted: dict[ReductionChoice, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.default = self.taken = next(iter(self.sums))
        self.gave_up_lossy = False  # for its loss, and for good: what leaves something out
        self._has_told = False  # a verdict
        self._to_time = [self.default]
        self._waited: dict[ReductionChoice, float] = {}  # of a step, by those that were timed
        self._watches = self._buckets_tried = self._is_confirmed = False
        self._compared: ReductionChoice | None = None  # what was compared with the default by its loss
        self.join_generation()

    def inherit(self, earlier: CommunicationTrial) -> None:
        """Take over what an earlier choice of this job has found that holds on any machines."""
        self.gave_up_lossy, self._compared, self._has_told = earlier.gave_up_lossy, earlier._compared, earlier._has_told

    @property
    def has_choice(self) -> bool:
        """Whether there is more than one way, or was: a job that has come to machines with one way alone tells so."""
        return len(self.sums) > 1 or bool(self.bucket_sizes) or self._has_told

    @property
    def current(self) -> ReductionChoice:
        """How the next step's gradients are summed."""
        if self._to_time:
            return self._to_time[0]
        return self.default if self._has_default_beside else self.taken

    @property
    def _has_default_beside(self) -> bool:
        """Whether this window is the default's, between two of the choice."""
        return len(self._windows) == 1

    def join_generation(self) -> None:
        """Count anew in another generation, which may have gone back some steps. Times, and what is taken by them, stay."""
        self.begin_round()
        self._level = LossLevel()
        self._windows: list[Sequence[float]] = []  # losses that are compared: by the choice, by the default, by the choice again
        self._is_suspected = False  # the choice: its loss has fallen more slowly once

    def begin_round(self) -> None:
        """Count the steps of a round anew."""
        self._seconds: list[float] = []
        self._waits: list[float] = []
        self._losses: list[float] = []
        self._skipped = 0

    def count(self, step: int, seconds: float, waited: float, loss: float) -> bool:
        """Count a step by `current`. Returns whether all ranks are to `conclude` now."""
        if self._skipped < WARM_UP:
            self._skipped += 1
            return False
        self._seconds.append(seconds)
        self._waits.append(waited)
        self._losses.append(loss)
        if self._may_be_given_up and not math.isfinite(loss):
            return True
        if not self._to_time:
            return self.taken != self.default and len(self._seconds) >= WINDOW
        return len(self._seconds) >= TIMED and (self.current != self.default or step >= self.dense_steps)

    def times(self) -> StepTimes:
        """This rank's part of what `conclude` needs."""
        return StepTimes(statistics.median(self._seconds), statistics.median(self._waits))

    def conclude(self, everyones: Sequence[StepTimes]) -> Verdict | None:
        """End a round with the times of all ranks. Returns what is decided by it, if anything is."""
        seconds, waited = max(each.seconds for each in everyones), min(each.waited for each in everyones)
        losses = self._losses
        self.begin_round()
        if not self._loss_holds_up(losses):
            return self._give_up()
        if not self._to_time:
            return self._watch(seconds, losses)
        timed = self._to_time.pop(0)
        self._waited.setdefault(timed, waited)
        self.measured[timed] = min(seconds, self.measured.get(timed, math.inf))
        if not self._to_time:
            self._to_time = self._next_to_time(timed)
        return None if self._to_time else self._decide()

    # -- what a round says

    def _next_to_time(self, timed: ReductionChoice) -> list[ReductionChoice]:
        """Return what is to be timed before a decision; nothing: all that is needed is known."""
        if self._watches:
            return [self.taken] if timed == self.default else []
        if len(self.measured) == 1 and not self._is_confirmed and (promising := self._promising()):
            return promising
        return self._with_other_buckets() or self._default_again()

    def _default_again(self) -> list[ReductionChoice]:
        """Return the default, once, where another choice is faster by a little: the first steps of a process are slower than all later ones."""
        best = min(self.measured, key=self._measured_cost)
        is_clear = self.measured[best] < CLEAR * self.measured[self.default]
        again = [] if self._is_confirmed or best == self.default or is_clear else [self.default]
        self._is_confirmed = True
        return again

    def _promising(self) -> list[ReductionChoice]:
        """Return the choices that are predicted to be worth it, the best first. No more can be saved than is waited for."""
        now, waited = self.measured[self.default], self._waited[self.default]
        sums = {each: seconds for each, seconds in self.sums.items() if not (self.gave_up_lossy and self._leaves_out(each))}
        self.predicted = {each: max(now - waited, now + seconds - sums[self.default]) for each, seconds in sums.items()}
        best = min(map(self._predicted_cost, self.predicted))
        saves = [each for each, seconds in self.predicted.items() if each != self.default and seconds < now * (1 - WORTH["none"])]
        worth_it = [each for each in saves if self._predicted_cost(each) <= NEAR * best]
        return sorted(worth_it, key=lambda each: (self._predicted_cost(each), sums[each]))[:MOST_TIMED]

    def _with_other_buckets(self) -> list[ReductionChoice]:
        """Return the best choice so far with each other size of buckets, once, where enough of its step is waited for."""
        best = min(self.measured, key=self._measured_cost)
        is_waited_for = self._waited[best] >= WORTH["none"] * self.measured[best]
        found = [replace(best, bucket_mb=size) for size in self.bucket_sizes] if is_waited_for and not self._buckets_tried else []
        self._buckets_tried = True
        return found

    def _predicted_cost(self, choice: ReductionChoice) -> float:
        return self.predicted[choice] / (1 - choice.worth)

    def _measured_cost(self, choice: ReductionChoice) -> float:
        return self.measured[choice] / (1 - choice.worth)

    def _decide(self) -> Verdict:
        before = self.taken
        self.taken = min(self.measured, key=self._measured_cost)
        if before not in (self.default, self.taken):
            return self._verdict("no_longer_faster", before)
        if self.taken != self.default:
            return self._verdict("faster")
        return self._verdict("not_faster" if len(self.measured) > 1 else "nothing_to_gain")

    def _watch(self, seconds: float, losses: Sequence[float]) -> Verdict | None:
        """End a window. Time the default once more where the choice is slower than that was, and give it up where its loss falls too slowly."""
        if not self._has_default_beside and seconds > self.measured.get(self.default, 0.0):
            self._watches, self.measured, self._to_time, self._windows = True, {}, [self.default], []
            return None
        if self._compared == self.taken or not self._leaves_out(self.taken):
            return None
        self._windows.append(losses)
        if len(self._windows) < 3:
            return None
        before, by_default, after = self._windows
        slower = slower_fall(before, by_default, after)
        if slower and not self._is_suspected:  # compare once more: what is given up is given up for good
            self._is_suspected, self._windows = True, [after]
            return None
        self._windows, self._compared, self._is_suspected = [], self.taken, False
        return self._give_up(slower) if slower else None

    @property
    def _may_be_given_up(self) -> bool:
        """Whether the current choice leaves something out, and the job has left open whether to."""
        return self._leaves_out(self.current)

    def _leaves_out(self, choice: ReductionChoice) -> bool:
        return choice.is_lossy and not all(each.is_lossy for each in self.sums)

    def _loss_holds_up(self, losses: Sequence[float]) -> bool:
        rises = not all(map(math.isfinite, losses)) or self._level.rises(losses)
        return not (rises and self._may_be_given_up)

    def _give_up(self, slower: SlowerFall | None = None) -> Verdict:
        """Drop a choice whose loss does not hold up, with all others that leave something out. `slower`: it falls, but too slowly."""
        before = self.taken if slower else self.current
        self._windows = []
        self.gave_up_lossy = True
        self._to_time = [each for each in self._to_time if not each.is_lossy]
        self.measured = {each: seconds for each, seconds in self.measured.items() if not each.is_lossy}
        self.taken = min(self.measured, key=self._measured_cost, default=self.default)
        return self._verdict("loss", before, slower)

    def _verdict(self, why: Why, before: ReductionChoice | None = None, slower: SlowerFall | None = None) -> Verdict:
        options = tuple(dict.fromkeys((*self.sums, *self.measured)))
        waited, self._has_told = self._waited.get(self.default, 0.0), True
        return Verdict(
            self.taken, why, options, dict(self.measured), dict(self.predicted), waited, self.links, before, slower, bool(self.bucket_sizes)
        )
