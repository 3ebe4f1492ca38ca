"""A series of equal faults on one gang that grows back in between, and the cost of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from scripts.faults import history
from scripts.faults.gang import Gang
from scripts.faults.history import History
from scripts.faults.observer import HangError
from scripts.faults.rig import Fault, Rig
from scripts.steps import say

#: Between two faults, beyond those that it takes to become whole: a watchdog must have seen how long steps take.
WARM_STEPS = 15
#: A gang that commits no step for so long after a fault hangs; so does one that does not replace its dead.
HANG_S = 60.0
WHOLE_TIMEOUT_S = 120.0


@dataclass
class Findings:
    """Figures of the faults on one job, or on several."""

    outages: list[float] = field(default_factory=list)  # from each blow to the survivors' next committed step
    joins: list[float] = field(default_factory=list)  # how long the working ranks stood still for the joining ones
    faults: int = 0
    hangs: int = 0
    steps_lost: int = 0
    split_brains: int = 0
    median_step: float = 0.0
    p99_step: float = 0.0

    def conclude(self, told: History) -> Findings:
        self.steps_lost += history.steps_redone(told) + len(history.never_done(told))
        self.split_brains += history.split_brains(told)
        self.median_step, self.p99_step = history.median_step(told), history.p99_step(told)
        return self


def strike_repeatedly(rig: Rig, gang: Gang, kind: str, count: int) -> Findings:
    """Strike every rank in turn. Ends early with a hang: faults after it would be another experiment."""
    findings = Findings()
    gang.observer.whole(gang.size, WHOLE_TIMEOUT_S)
    for number in range(count):
        victim = gang.victim(number % gang.size, gang.observer.newest_step + WARM_STEPS)
        fault = rig.strike(kind, victim)
        findings.faults += 1
        try:
            outage, joined = _recover(rig, gang, fault)
        except HangError as hang:
            findings.hangs += 1
            say(f"  HANG after {fault}: {hang}; the job is {gang.job().state} at step {gang.job().progress.step}")
            break
        findings.outages.append(outage)
        findings.joins += joined
        say(f"  {kind} at step {victim.step}, rank {victim.rank}: {outage:.3f} s; joined {', '.join(f'{each:.3f} s' for each in joined)}")
    return findings.conclude(gang.history)


def _recover(rig: Rig, gang: Gang, fault: Fault) -> tuple[float, list[float]]:
    """Waits until the gang goes on and is whole again; the outages of both."""
    before = fault.victim.generation
    if not gang.observer.resumed(before, HANG_S):
        raise HangError(f"no step within {HANG_S:g} s")
    rig.heal()
    whole = gang.observer.whole(gang.size, WHOLE_TIMEOUT_S)
    gang.observer.reach(0, gang.observer.newest_step + WARM_STEPS, HANG_S)
    told = gang.history
    resumed_at = history.resumed_at(told, before)
    assert resumed_at is not None
    following = min(number for number in history.generations(told) if number > before)
    return resumed_at - fault.at, [history.join_outage(told, following, whole)] if whole > following else []
