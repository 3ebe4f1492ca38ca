"""Each broken promise is seen, and a run that kept all is found to have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scripts.chaos.run import Run, Struck
from scripts.chaos.verdict import judge
from scripts.faults.gang import Victim
from scripts.faults.history import Commit
from scripts.faults.rig import Fault

STEPS = 10
FAULT = Fault("rank_killed", Victim(1, "b", 77, 1, 5), 5.2)


def commits(generation: int, first: int, last: int, members: str, late: float = 0.0) -> list[Commit]:
    return [
        Commit(member, generation, rank, step, step + late, 1.0) for step in range(first, last + 1) for rank, member in enumerate(members)
    ]


def run(**changes: Any) -> Run:
    kept = Run(
        job_id="job",
        last_step=STEPS,
        struck=[Struck(FAULT, 0.5)],
        commits=[*commits(1, 1, 5, "abc"), *commits(2, 6, STEPS, "ac", late=1.0)],
        curve={step: [(1.0 / step, 0.5)] for step in range(1, STEPS + 1)},
        incidents=[{"action": "closed_up"}],
        samples={"exactly_once": True},
    )
    return replace(kept, **changes)


CONTROL = run(struck=[], commits=commits(1, 1, STEPS, "abc"), incidents=[])


def test_a_run_that_kept_everything() -> None:
    verdict = judge(run(), CONTROL)
    assert verdict.broken == []
    assert verdict.goodput == pytest.approx(9 / 10)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"hangs": ["no step"]}, "1 hangs"),
        ({"restarts": 1}, "1 restarts"),
        ({"commits": [*commits(1, 1, 6, "abc"), *commits(2, 6, STEPS, "ac", late=1.0)]}, "1 steps lost"),
        ({"commits": [*commits(1, 1, 4, "abc"), *commits(2, 6, STEPS, "ac", late=1.0)]}, "1 steps lost"),
        ({"commits": [*run().commits, Commit("b", 1, 1, 6, 9.0, 1.0)]}, "1 split brains"),
        ({"incidents": []}, "0 incidents for 1 faults"),
        ({"struck": [Struck(FAULT, 0.5, ("c",))]}, "survivors were started anew: c"),
        ({"curve": {step: [(1.0 / step, 0.5)] for step in range(1, STEPS)}}, "lacks steps"),
        ({"curve": {step: [(1.0 / step, 0.5)] * 2 for step in range(1, STEPS + 1)}}, "some twice"),
        ({"curve": {step: [(1.0 / step, 0.5 + (step == 7) * 2**-53)] for step in range(1, STEPS + 1)}}, "from step 7 on"),
        ({"samples": {"exactly_once": False}}, "samples were not used exactly once"),
    ],
)
def test_each_broken_promise_is_told(changes: dict[str, Any], told: str) -> None:
    assert any(told in text for text in judge(run(**changes), CONTROL).broken)


def test_an_agent_that_dies_alone_is_no_incident() -> None:
    unnoticed = Struck(replace(FAULT, kind="agent_killed"), None)
    assert judge(run(struck=[Struck(FAULT, 0.5), unnoticed]), CONTROL).broken == []
