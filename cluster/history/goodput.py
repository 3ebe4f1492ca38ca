"""Accounts for a job's time: useful steps over wall time, and a cause for every second of the rest. Pure.

The causes are layers of time, painted one over the other, so each moment has exactly one cause and the parts always add up to the
wall time, whatever the clocks of the machines say. The wall begins as the job first got its slots. Time in which the job was paused is
its user's, and is cut out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from paceline.cluster.history.lineage import Line, lineage
from paceline.cluster.states import TERMINAL_JOB_STATES, JobState


class Cause(StrEnum):
    STEPPING = "stepping"  # the useful part
    REDONE = "redone"
    EVALUATING_AND_SAVING = "evaluating_and_saving"
    STARTING = "starting"
    WAITING = "waiting"
    INCIDENT = "incident"
    RESIZING = "resizing"
    PAUSING = "pausing"
    STOPPING = "stopping"
    UNACCOUNTED = "unaccounted"


#: What each of them means, for people.
WORDS: Mapping[Cause, str] = {
    Cause.STEPPING: "steps kept in the final run",
    Cause.REDONE: "lost work: steps cut short by a fault, and steps repeated from a checkpoint",
    Cause.EVALUATING_AND_SAVING: "evaluations, checkpoints, and overhead between steps",
    Cause.STARTING: "from slot allocation to the first step: process launch, rendezvous, restore",
    Cause.WAITING: "waiting for slots again after it had started",
    Cause.INCIDENT: "from a fault until the next generation began its first step",
    Cause.RESIZING: "changing size, or leaving a node that was removed",
    Cause.PAUSING: "from the pause request until the slots were released, excluding steps completed in between",
    Cause.STOPPING: "from the last step until all ranks had ended",
    Cause.UNACCOUNTED: "not attributed",
}


@dataclass(frozen=True)
class Interval:
    began: float  # seconds since the epoch
    ended: float
    cause: Cause
    incident: str | None = None


@dataclass(frozen=True)
class StatePeriod:
    """A state of the job, and since when. `pausing`: it stops because its user asked for a pause."""

    since: float
    state: JobState
    pausing: bool = False


@dataclass(frozen=True)
class StepRun:
    """Steps `first` to `last` of one generation as its rank 0 reported them: `seconds` of the time between `began` and `ended` were in
    steps."""

    generation: int
    first: int
    last: int
    began: float
    ended: float
    seconds: float


@dataclass(frozen=True)
class GenerationFacts:
    """One generation. `placed`: its ranks are new processes; else living ones."""

    number: int
    start_step: int
    started: float
    ended: float | None
    placed: bool
    saved: float | None = None  # when its last evaluation or save was done
    first_step: float | None = None  # when its first step was done, where no record of it tells


@dataclass(frozen=True)
class Fault:
    incident: str
    generation: int
    next_generation: int | None
    step: int  # the newest that any rank of the generation had finished
    began: float
    ended: float | None  # None: not over
    wanted: bool = False  # a person has removed the node


@dataclass(frozen=True)
class GoodputInputs:
    began: float  # the job first got slots
    now: float  # or when it ended
    state_periods: Sequence[StatePeriod]
    generations: Sequence[GenerationFacts]
    step_runs: Sequence[StepRun]  # in order within each generation
    faults: Sequence[Fault]
    tells_steps: bool = True  # a script does not


@dataclass(frozen=True)
class TimeAccount:
    wall: float
    paused: float
    useful_steps: int
    redone_steps: int
    parts: Mapping[Cause, float]  # of every cause; they add up to `wall`
    by_incident: Mapping[str, float] = field(default_factory=dict)  # of the part `incident`

    @property
    def goodput(self) -> float | None:
        return self.parts[Cause.STEPPING] / self.wall if self.wall > 0 and self.useful_steps else None


def account(facts: GoodputInputs) -> TimeAccount:
    """Divide the wall time among its causes, by layers from the bottom up: a later layer hides what lies below it."""
    newest = newest_steps(facts)
    lines = lineage({each.number: each.start_step for each in facts.generations}, newest)
    painted = [Interval(facts.began, facts.now, Cause.UNACCOUNTED)] if facts.now > facts.began else []
    layers = (endings(facts), states(facts), starts(facts), resizes(facts), tails(facts), broken_off(facts), outages(facts), gaps(facts))
    for layer in (*layers, steps(facts, lines)):
        painted = overlay(painted, layer)
    counted = without(painted, spans_of(facts, dict.fromkeys(_AT_REST, Cause.PAUSING)))
    parts = {cause: math.fsum(span.ended - span.began for span in counted if span.cause is cause) for cause in Cause}
    wall = math.fsum(parts.values())
    return TimeAccount(
        wall=wall,
        paused=max(0.0, facts.now - facts.began - wall),
        useful_steps=useful_steps(lines),
        redone_steps=finished_steps(facts.generations, newest) - sum(line.steps for line in lines),
        parts=parts,
        by_incident={
            fault.incident: math.fsum(span.ended - span.began for span in counted if span.incident == fault.incident)
            for fault in facts.faults
        },
    )


def newest_steps(facts: GoodputInputs) -> dict[int, int]:
    """The last step that each generation finished, also where the rank that would have reported it was killed first. A generation that
    reported none has none: its start is a guess."""
    newest: dict[int, int] = {}
    for step_run in facts.step_runs:
        newest[step_run.generation] = max(newest.get(step_run.generation, 0), step_run.last)
    for fault in facts.faults:
        if fault.generation in newest:
            newest[fault.generation] = max(newest[fault.generation], fault.step)
    return newest


def finished_steps(generations: Sequence[GenerationFacts], newest: Mapping[int, int]) -> int:
    """The number of steps that all generations together finished: a step that two of them finished counts twice."""
    starts = {each.number: each.start_step for each in generations}
    return sum(max(0, last - starts.get(generation, 0)) for generation, last in newest.items())


def useful_steps(lines: Sequence[Line]) -> int:
    """The number of useful steps from the first to the last: steps between two lines were done too, and the records of them went with a
    rank."""
    return lines[-1].last - lines[0].first + 1 if lines else 0


def kept_steps(step_run: StepRun, lines: Sequence[Line]) -> int:
    return sum(line.overlap(step_run.first, step_run.last) for line in lines if line.generation == step_run.generation)


# --- the layers


#: The job asks for nothing: paused, or ended until it is set back to a checkpoint. That time is no part of the wall time.
_AT_REST = (JobState.PAUSED, *TERMINAL_JOB_STATES)
_OF_STATE = {
    JobState.QUEUED: Cause.WAITING,
    JobState.STARTING: Cause.STARTING,
    JobState.RECOVERING: Cause.STARTING,
    JobState.RESIZING: Cause.RESIZING,
    JobState.STOPPING: Cause.STOPPING,
}


def endings(facts: GoodputInputs) -> list[Interval]:
    """The time from the last thing that a generation did until its end was known."""
    done = _last_done(facts)
    return disjoint(
        Interval(done[each.number], each.ended, Cause.STOPPING)
        for each in facts.generations
        if each.ended is not None and each.number in done
    )


def states(facts: GoodputInputs) -> list[Interval]:
    return spans_of(facts, _OF_STATE)


def spans_of(facts: GoodputInputs, causes: Mapping[JobState, Cause]) -> list[Interval]:
    ends = _ends([period.since for period in facts.state_periods], facts.now)
    return disjoint(
        Interval(period.since, end, Cause.PAUSING if period.pausing else causes[period.state])
        for period, end in zip(facts.state_periods, ends, strict=True)
        if period.state in causes
    )


def starts(facts: GoodputInputs) -> list[Interval]:
    """The time of new processes until their first step begins, or until their generation ends without one."""
    if not facts.tells_steps:
        return []
    return disjoint(Interval(each.started, _first_began(facts, each), Cause.STARTING) for each in facts.generations if each.placed)


def resizes(facts: GoodputInputs) -> list[Interval]:
    """The time that changes of size took, without a fault: from the last step before the change to the first one after it."""
    made_by_faults = {fault.next_generation for fault in facts.faults}
    chosen = [each for each in facts.generations if not each.placed and each.number not in made_by_faults]
    return disjoint(Interval(_last_ended(facts, each), _first_began(facts, each), Cause.RESIZING) for each in chosen)


def outages(facts: GoodputInputs) -> list[Interval]:
    """The time of each fault until it was overcome. A later fault takes over from one that was not overcome yet."""
    faults = sorted(facts.faults, key=lambda fault: fault.began)
    ends = _ends([fault.began for fault in faults], math.inf)
    ended = [facts.now if fault.ended is None else fault.ended for fault in faults]
    return disjoint(
        Interval(fault.began, min(own, following), Cause.RESIZING if fault.wanted else Cause.INCIDENT, fault.incident)
        for fault, own, following in zip(faults, ended, ends, strict=True)
    )


def tails(facts: GoodputInputs) -> list[Interval]:
    """The time after a generation's last step that its evaluation and save took."""
    last = {step_run.generation: step_run.ended for step_run in facts.step_runs}
    return disjoint(
        Interval(last[each.number], each.saved, Cause.EVALUATING_AND_SAVING)
        for each in facts.generations
        if each.saved is not None and each.number in last
    )


def gaps(facts: GoodputInputs) -> list[Interval]:
    return disjoint(
        Interval(one.ended, other.began, Cause.EVALUATING_AND_SAVING)
        for one, other in pairwise(facts.step_runs)
        if one.generation == other.generation
    )


def broken_off(facts: GoodputInputs) -> list[Interval]:
    """The time of unfinished work: from the last step, evaluation or save that a generation finished until the fault."""
    done = _last_done(facts)
    return disjoint(Interval(done[fault.generation], fault.began, Cause.REDONE) for fault in facts.faults if fault.generation in done)


def steps(facts: GoodputInputs, lines: Sequence[Line]) -> list[Interval]:
    return disjoint(span for step_run in facts.step_runs for span in spans_of_steps(step_run, kept_steps(step_run, lines)))


def spans_of_steps(step_run: StepRun, kept: int) -> list[Interval]:
    """The time between the steps of a run first, then the steps that count, then those that do not."""
    length = max(0.0, step_run.ended - step_run.began)
    stepped = min(length, step_run.seconds)
    useful = stepped * kept / (step_run.last - step_run.first + 1)
    marks = [step_run.began, step_run.ended - stepped, step_run.ended - stepped + useful, step_run.ended]
    causes = (Cause.EVALUATING_AND_SAVING, Cause.STEPPING, Cause.REDONE)
    return [Interval(began, ended, cause) for (began, ended), cause in zip(pairwise(marks), causes, strict=True)]


def _ends(begins: Sequence[float], last: float) -> list[float]:
    """The end of each span: each ends as the next one begins."""
    return [*begins[1:], last] if begins else []


def _first_began(facts: GoodputInputs, generation: GenerationFacts) -> float:
    own = (step_run.began for step_run in facts.step_runs if step_run.generation == generation.number)
    without = next((moment for moment in (generation.first_step, generation.ended) if moment is not None), facts.now)
    return next(own, without)


def _last_done(facts: GoodputInputs) -> dict[int, float]:
    """When each generation finished its last step, evaluation or save."""
    done = {step_run.generation: step_run.ended for step_run in facts.step_runs}
    saved = {each.number: each.saved for each in facts.generations if each.saved is not None}
    return {generation: max(ended, saved.get(generation, ended)) for generation, ended in done.items()}


def _last_ended(facts: GoodputInputs, generation: GenerationFacts) -> float:
    earlier = [step_run.ended for step_run in facts.step_runs if step_run.generation < generation.number]
    return max(earlier, default=generation.started)


# --- painting


def disjoint(spans: Iterable[Interval]) -> list[Interval]:
    """The spans in order of time, each cut to what the earlier ones leave, without empty ones."""
    result: list[Interval] = []
    free = -math.inf
    for span in sorted(spans, key=lambda span: (span.began, span.ended)):
        began = max(span.began, free)
        if span.ended > began:
            result.append(replace(span, began=began))
            free = span.ended
    return result


def overlay(below: Sequence[Interval], above: Sequence[Interval]) -> list[Interval]:
    """Paint `above` over `below`, within the bounds of `below`. Both are in order and disjoint."""
    result: list[Interval] = []
    first = 0
    for span in below:
        while first < len(above) and above[first].ended <= span.began:
            first += 1
        result += _painted(span, above, first)
    return result


def without(spans: Sequence[Interval], holes: Sequence[Interval]) -> list[Interval]:
    """The spans, less the time of the holes. Both are in order and disjoint."""
    result: list[Interval] = []
    for span in spans:
        began = span.began
        for hole in holes:
            if hole.began < span.ended and hole.ended > began:
                if hole.began > began:
                    result.append(replace(span, began=began, ended=hole.began))
                began = hole.ended
        if began < span.ended:
            result.append(replace(span, began=began))
    return result


def _painted(span: Interval, above: Sequence[Interval], first: int) -> list[Interval]:
    pieces: list[Interval] = []
    at = span.began
    for index in range(first, len(above)):
        top = above[index]
        if top.began >= span.ended:
            break
        began, ended = max(top.began, at), min(top.ended, span.ended)
        if began > at:
            pieces.append(replace(span, began=at, ended=began))
        pieces.append(replace(top, began=began, ended=ended))
        at = ended
    if at < span.ended:
        pieces.append(replace(span, began=at))
    return pieces
