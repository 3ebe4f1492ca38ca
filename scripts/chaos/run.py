"""A job under faults, and the same job left alone: both on one stack, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scripts.chaos.schedule import Planned
from scripts.faults import history
from scripts.faults.gang import Gang
from scripts.faults.history import Commit
from scripts.faults.observer import HangError
from scripts.faults.rig import Fault, Rig
from scripts.faults.series import HANG_S, WHOLE_TIMEOUT_S
from scripts.steps import say

#: Ranks and spawner live on: the gang does not even notice.
UNNOTICED = frozenset({"agent_killed"})
#: Metrics are read in portions that come as they were recorded, not rolled up.
PORTION = 1000
NAMES = "loss,gradient_norm"

#: What was reported at each step: loss and gradient norm, as often as each was told.
Curve = dict[int, list[tuple[float, ...]]]


@dataclass(frozen=True)
class Struck:
    """A fault that was dealt, and how the gang took it."""

    fault: Fault
    outage: float | None  # None: no other rank noticed, as was meant
    moved: tuple[str, ...] = ()  # survivors whose process is not the one it was


@dataclass
class Run:
    """Results of one job under faults."""

    job_id: str
    last_step: int
    struck: list[Struck] = field(default_factory=list)
    hangs: list[str] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    curve: Curve = field(default_factory=dict)
    incidents: list[dict[str, Any]] = field(default_factory=list)
    samples: dict[str, Any] = field(default_factory=dict)
    restarts: int = 0

    @property
    def seconds(self) -> float:
        """Seconds from the run's first step to its last."""
        return history.finished_at(self.commits, self.last_step) - history.finished_at(self.commits, 1)


def run_chaos(rig: Rig, gang: Gang, plan: Sequence[Planned], last: int) -> Run:
    run = Run(gang.job_id, last)
    try:
        for number, planned in enumerate(plan, 1):
            struck = strike(rig, gang, planned)
            run.struck.append(struck)
            say(f"  {number}/{len(plan)} {_telling(struck)}")
        gang.observer.whole(gang.size, WHOLE_TIMEOUT_S)
        run.last_step = max(last, gang.observer.newest_step)
        gang.observer.reach(0, run.last_step, _patience(run.last_step - gang.observer.newest_step))
    except HangError as hang:
        run.hangs.append(str(hang))
        say(f"  HANG: {hang}")
        run.last_step = gang.observer.newest_step
    return note(run, gang)


def run_control(gang: Gang, last: int) -> Run:
    gang.observer.reach(0, last, _patience(last))
    return note(Run(gang.job_id, last), gang)


def _patience(steps: int) -> float:
    return HANG_S + steps  # a second a step is slow


def strike(rig: Rig, gang: Gang, planned: Planned) -> Struck:
    """Strike the planned fault once the gang is whole and the rank has reached the step. Returns when the other ranks go on and the
    damage is repaired."""
    before = gang.processes(gang.observer.whole(gang.size, WHOLE_TIMEOUT_S))
    victim = gang.victim(planned.rank, planned.step)
    fault = rig.strike(planned.kind, victim)
    if planned.kind in UNNOTICED:
        gang.observer.reach(planned.rank, victim.step + 3, HANG_S)
        rig.heal()
        return Struck(fault, None, _moved(before, gang.processes(victim.generation)))
    if not gang.observer.resumed(victim.generation, HANG_S):
        raise HangError(f"no step within {HANG_S:g} s after {fault}; {gang.job()}")
    after = gang.processes(victim.generation + 1)
    rig.heal()
    resumed_at = history.resumed_at(gang.history, victim.generation)
    assert resumed_at is not None
    survivors = {node: pid for node, pid in before.items() if node != victim.node}
    return Struck(fault, resumed_at - fault.at, _moved(survivors, after))


def _moved(before: dict[str, int], after: dict[str, int]) -> tuple[str, ...]:
    return tuple(sorted(node for node, pid in before.items() if after.get(node) != pid))


def note(run: Run, gang: Gang) -> Run:
    """Collect everything that the verdict needs, while the job still exists; its ranks' last records have arrived by then."""
    gang.cancel()
    path = f"/training/jobs/{gang.job_id}"
    run.commits, run.restarts = gang.history, gang.job().restarts
    run.incidents, run.samples = list(gang.client.get(f"{path}/incidents")), dict(gang.client.get(f"{path}/samples"))
    run.curve = curve(gang, run.last_step)
    return run


def curve(gang: Gang, last: int) -> Curve:
    """Return the loss by step as a user reads it: from the coordinator, over all generations."""
    found: Curve = {}
    for first in range(1, last + 1, PORTION):
        portion = {"names": NAMES, "first_step": first, "last_step": min(first + PORTION - 1, last), "buckets": 2 * PORTION}
        curves = gang.client.get(f"/metrics/jobs/{gang.job_id}", **portion)["curves"]
        told: dict[tuple[int, int], list[float]] = {}
        for each in sorted(curves, key=lambda each: str(each["name"])):
            if each["bucket_steps"] != 1:
                raise ValueError(f"steps {first} to {first + PORTION} of {gang.job_id} came rolled up: they were told more than once")
            for step, value in zip(each["steps"], each["last"], strict=True):
                told.setdefault((step, each["generation"]), []).append(float(value))
        for (step, _), values in told.items():
            found.setdefault(step, []).append(tuple(values))
    return found


def _telling(struck: Struck) -> str:
    victim, cost = struck.fault.victim, "unnoticed" if struck.outage is None else f"{struck.outage:.3f} s"
    return f"{struck.fault.kind} of rank {victim.rank} on {victim.node} at step {victim.step}: {cost}"
