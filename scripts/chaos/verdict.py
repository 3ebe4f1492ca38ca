"""What a run under faults has kept of what was promised, beside the same job left alone. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scripts.chaos.run import UNNOTICED, Run
from scripts.faults import history


@dataclass(frozen=True)
class Verdict:
    faults: int
    hangs: int
    restarts: int
    steps_lost: int  # done again by ranks that had done them, or done by no rank
    split_brains: int
    incidents: int
    faults_with_incident: int
    moved: tuple[str, ...]  # survivors that did not keep their process
    told_once: bool  # the stored curve has every step exactly once
    samples_once: bool
    compared: int
    first_difference: int | None  # step at which the curve leaves the control's, by as little as one bit
    goodput: float  # throughput kept: seconds of the control for the same steps, over seconds of this run

    @property
    def broken(self) -> list[str]:
        """Promises that were not kept, in words."""
        checks = {
            f"{self.hangs} hangs": self.hangs == 0,
            f"{self.restarts} restarts": self.restarts == 0,
            f"{self.steps_lost} steps lost": self.steps_lost == 0,
            f"{self.split_brains} split brains": self.split_brains == 0,
            f"{self.incidents} incidents for {self.faults_with_incident} faults": self.incidents == self.faults_with_incident,
            f"survivors were started anew: {', '.join(self.moved)}": not self.moved,
            "the stored curve lacks steps or has some twice": self.told_once,
            "samples were not used exactly once": self.samples_once,
            f"the curve differs from the control's from step {self.first_difference} on": self.first_difference is None,
        }
        return [text for text, kept in checks.items() if not kept]


def judge(run: Run, control: Run) -> Verdict:
    steps = set(range(1, min(run.last_step, control.last_step) + 1))
    return Verdict(
        faults=len(run.struck),
        hangs=len(run.hangs),
        restarts=run.restarts,
        steps_lost=history.steps_redone(run.commits) + len(history.never_done(run.commits)),
        split_brains=history.split_brains(run.commits),
        incidents=len(run.incidents),
        faults_with_incident=sum(struck.fault.kind not in UNNOTICED for struck in run.struck),
        moved=tuple(node for struck in run.struck for node in struck.moved),
        told_once=all(len(run.curve.get(step, ())) == 1 for step in range(1, run.last_step + 1)),
        samples_once=run.samples.get("exactly_once") is True,
        compared=len(steps),
        first_difference=min((step for step in steps if run.curve.get(step) != control.curve.get(step)), default=None),
        goodput=control.seconds / run.seconds,
    )
