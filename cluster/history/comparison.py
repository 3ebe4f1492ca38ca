"""Are two runs the same? Numbers are compared as bits, and the answer is a sentence to quote. Pure."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from paceline.cluster.states import TERMINAL_JOB_STATES, JobState
from paceline.monitoring.words import plural

Verdict = Literal["same", "same_so_far", "diverged", "close", "different", "nothing_to_compare"]

#: Where the largest relative difference stays below this, two runs that are not the same are called close.
CLOSE = 1e-4
#: Parts of a spec that say how, where and for whom a job runs, not what it computes. An entry covers what is below it.
HARMLESS = (
    "version",
    "name",
    "project",
    "description",
    "labels",
    "priority",
    "checkpoint",
    "fault_tolerance",
    "profile",
    "training.eval_every_steps",
    "training.generate_tokens",
    "training.data_workers",
    "environment.code.folder",
    "environment.code.commit",
    "environment.code.branch",
    "environment.code.uncommitted",
)
#: These change the rounding only, and of a reproducible job not even that: what else a plan says is how one replica is made up.
OF_THE_WORLD = (
    "resources",
    "parallelism.strategy",
    "parallelism.replicate",
    "parallelism.activation_checkpointing",
    "parallelism.reshard_after_forward",
)

_OF_SPEED = re.compile(r"time|second|_sec\b|/s(ec)?\b|_ms\b|throughput|speed|memory|gpu|cpu|util", re.IGNORECASE)


def bits(value: float) -> bytes:
    """The bits of a value, for comparison: 0.0 and -0.0 differ; all NaN are equal, since a NaN travels here as a word."""
    return b"NaN" if math.isnan(value) else struct.pack("<d", value)


def measures_speed(name: str) -> bool:
    """Whether a metric of this name, which a script has chosen, measures time or the machine: such values differ between equal runs."""
    return _OF_SPEED.search(name) is not None


def relative_difference(one: float, other: float) -> float:
    if bits(one) == bits(other):
        return 0.0
    scale = max(abs(one), abs(other))
    if not math.isfinite(one) or not math.isfinite(other):
        return math.inf
    return abs(one - other) / scale if scale else 0.0


@dataclass
class MetricTally:
    """The comparison of one metric, step after step; an accumulator."""

    name: str
    compared: int = 0
    equal: int = 0
    only_in_one: int = 0
    largest: float = 0.0
    first_difference: tuple[int, float, float] | None = None

    def add(self, step: int, one: float | None, other: float | None) -> None:
        if one is None or other is None:
            self.only_in_one += (one is None) != (other is None)
            return
        self.compared += 1
        if bits(one) == bits(other):
            self.equal += 1
            return
        self.largest = max(self.largest, relative_difference(one, other))
        self.first_difference = self.first_difference or (step, one, other)


@dataclass
class MetricTallies:
    """The comparison of all metrics of two runs over the steps that both know; an accumulator."""

    metrics: dict[str, MetricTally] = field(default_factory=dict)
    steps: int = 0
    equal_steps: int = 0
    first_step: int = 0  # that both have told

    def add(self, step: int, one: Mapping[str, float], other: Mapping[str, float]) -> None:
        """Compare the values of a step that both runs have recorded."""
        for name in sorted(one.keys() | other.keys()):
            self.metrics.setdefault(name, MetricTally(name)).add(step, one.get(name), other.get(name))
        if shared := one.keys() & other.keys():
            self.first_step = self.first_step if self.steps else step
            self.steps += 1
            self.equal_steps += all(bits(one[name]) == bits(other[name]) for name in shared)

    def miss(self, step: int, values: Mapping[str, float]) -> None:
        """Note a step that only one run has, though the other went beyond it."""
        for name in values:
            self.metrics.setdefault(name, MetricTally(name)).add(step, values[name], None)

    @property
    def first_difference(self) -> tuple[str, int, float, float] | None:
        found = [(tally.first_difference[0], tally.name, *tally.first_difference[1:]) for tally in self.ordered if tally.first_difference]
        if not found:
            return None
        step, name, one, other = min(found, key=lambda each: each[0])
        return name, step, one, other

    @property
    def missing(self) -> int:
        """The number of steps without a counterpart."""
        return max((tally.only_in_one for tally in self.metrics.values() if tally.name == "loss"), default=0)

    @property
    def largest(self) -> float:
        return max((tally.largest for tally in self.metrics.values()), default=0.0)

    @property
    def ordered(self) -> list[MetricTally]:
        """The tallies, the loss first, which matters most."""
        return sorted(self.metrics.values(), key=lambda tally: (tally.name != "loss", tally.name))


@dataclass(frozen=True)
class ComparedRun:
    """The history of one of the two runs."""

    state: JobState
    last_step: int | None
    world_sizes: tuple[int, ...]
    recoveries: int = 0
    resizes: int = 0
    pauses: int = 0
    tells_all: bool = True  # False: a script, of which nothing is known but what it logs
    points_removed_to: int | None = None  # the step up to which its raw points have been removed; None: all are kept


@dataclass(frozen=True)
class Parameters:
    step: int
    equal: bool


def verdict(one: ComparedRun, other: ComparedRun, tallies: MetricTallies, parameters: Parameters | None) -> Verdict:
    if not tallies.steps:
        return "nothing_to_compare"
    if _all_equal(tallies, parameters):
        if shorter_and_longer(one, other):
            return "diverged"
        complete = one.state is other.state is JobState.COMPLETED and one.last_step == other.last_step
        return "same" if complete else "same_so_far"
    if tallies.first_difference is not None and tallies.largest <= CLOSE:
        return "close"
    return "diverged" if tallies.equal_steps else "different"


def _all_equal(tallies: MetricTallies, parameters: Parameters | None) -> bool:
    return tallies.first_difference is None and (parameters is None or parameters.equal) and not tallies.missing


def shorter_and_longer(one: ComparedRun, other: ComparedRun) -> tuple[int, int] | None:
    """The last steps of two runs that have both ended, one before the other; None: they are as long, or may yet be."""
    if one.last_step is None or other.last_step is None or not {one.state, other.state} <= TERMINAL_JOB_STATES:
        return None
    return (min(one.last_step, other.last_step), max(one.last_step, other.last_step)) if one.last_step != other.last_step else None


def sentence(one: ComparedRun, other: ComparedRun, tallies: MetricTallies, parameters: Parameters | None) -> str:
    how = verdict(one, other, tallies, parameters)
    if how == "nothing_to_compare":
        return nothing_to_compare(one, other, parameters)
    if how in ("same", "same_so_far"):
        what = "same run" if one.tells_all and other.tells_all else "same logged numbers"
        opening = f"{what}, to the last bit" if how == "same" else f"{what} so far, to the last bit"
        same_parameters = f", and the parameters at step {parameters.step}" if parameters else ""
        return f"{opening}: {tallies.equal_steps} of {plural(tallies.steps, 'step')} equal{same_parameters}{circumstances(one, other)}"
    lengths = shorter_and_longer(one, other)
    if lengths and _all_equal(tallies, parameters):
        return f"equal until step {lengths[0]}, where one of them ended; the other ended at step {lengths[1]}{circumstances(one, other)}"
    return difference(tallies, parameters, how) + circumstances(one, other)


def nothing_to_compare(one: ComparedRun, other: ComparedRun, parameters: Parameters | None) -> str:
    removed = max((run.points_removed_to for run in (one, other) if run.points_removed_to is not None), default=None)
    if removed is None:
        return "nothing to compare: no step is known of both"
    hashes = f"; the parameters at step {parameters.step} {'are equal' if parameters.equal else 'differ'}" if parameters else ""
    return f"steps cannot be compared: the raw points of one of them up to step {removed:,} have been removed{hashes}"


def difference(tallies: MetricTallies, parameters: Parameters | None, how: Verdict) -> str:
    first = tallies.first_difference
    if first is None:
        if parameters is not None and not parameters.equal:
            return f"{tallies.equal_steps} of {plural(tallies.steps, 'step')} equal, but the parameters at step {parameters.step} differ"
        return f"{tallies.equal_steps} of {plural(tallies.steps, 'step')} equal, but {plural(tallies.missing, 'step')} {'is' if tallies.missing == 1 else 'are'} known of one of them only"
    name, step, left, right = first
    until = f"equal until step {step - 1}, then differs" if tallies.equal_steps and step > tallies.first_step else "differs from the start"
    found = f"{until}: {name} {left!r} and {right!r} at step {step}"
    if how != "close":
        return found
    near = f"to {bound(tallies.largest)}" if tallies.largest else "but for the sign of zeros"
    return f"equal {near} over {plural(tallies.steps, 'step')}, not to the last bit; {found}"


def bound(largest: float) -> str:
    """The next power of ten at or above a difference: 3.2e-6 is equal to 1e-5."""
    return f"1e{math.ceil(math.log10(largest)):d}"


def circumstances(one: ComparedRun, other: ComparedRun) -> str:
    sizes = sorted({*one.world_sizes, *other.world_sizes})
    on = f", on {listed([str(size) for size in sizes])} {'rank' if sizes == [1] else 'ranks'}" if sizes else ""
    counted = ((one.recoveries + other.recoveries, "recovery", "recoveries"), (one.resizes + other.resizes, "resize", "resizes"))
    events = [*counted, (one.pauses + other.pauses, "pause", "pauses")]
    through = [f"{count} {single if count == 1 else several}" for count, single, several in events if count]
    return on + (f", through {listed(through)}" if through else "")


def listed(words: Sequence[str]) -> str:
    """Numbers for a sentence: "2, 3 and 5"."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- specs


@dataclass(frozen=True)
class SpecFieldDifference:
    path: str
    values: tuple[Any, Any]  # ABSENT where it is not there
    changes_numbers: bool


ABSENT = object()


def spec_differences(one: Mapping[str, Any], other: Mapping[str, Any], *, reproducible: bool) -> list[SpecFieldDifference]:
    """The differences of two specs, those that may change the numbers first. `reproducible`: both runs are."""
    left, right = flat(one), flat(other)
    found = [
        SpecFieldDifference(path, (left.get(path, ABSENT), right.get(path, ABSENT)), _changes_numbers(path, reproducible))
        for path in sorted(left.keys() | right.keys())
        if left.get(path, ABSENT) != right.get(path, ABSENT)
    ]
    return sorted(found, key=lambda each: not each.changes_numbers)


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The leaves of a document by dotted path; lists are leaves."""
    found: dict[str, Any] = {}
    for name, value in document.items():
        path = f"{prefix}{name}"
        found |= flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return found


def _changes_numbers(path: str, reproducible: bool) -> bool:
    harmless = (*HARMLESS, *OF_THE_WORLD, "reproducible") if reproducible else HARMLESS
    return not any(path == part or path.startswith(f"{part}.") for part in harmless)
