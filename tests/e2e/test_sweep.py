"""A halved sweep on real ranks whose coordinator is killed in the middle: every trial pauses at its very rungs, none is begun again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.stack import Stack, wait_until
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.release, pytest.mark.timeout(400)]

LRS = [1e-5, 1e-3, 3e-3, 3e-2, 3.0]
RUNGS, TOTAL, LONGER = (20, 40), 80, 100
SWEEP: dict[str, Any] = {
    "name": "sweep",
    "job": {
        "resources": {"slots": 1},
        "parallelism": {"strategy": "single"},
        "model": {"kind": "mlp", "hidden": [32]},
        "data": {"kind": "digits"},
        "optimizer": {"kind": "adamw"},
        "training": {"steps": TOTAL, "global_batch_size": 16, "eval_every_steps": 1000, "eval_samples": 64, "seed": 7},
        "checkpoint": {"every_steps": None},
    },
    "grid": {"optimizer.lr": LRS},
    "metric": {"name": "eval_loss"},
    "halving": {"min_steps": RUNGS[0], "factor": 2},
}
SECONDS = 150.0


def test_a_sweep_whose_coordinator_is_killed_finds_the_best_and_its_winner_trains_longer(empty_stack: Stack) -> None:
    stack = empty_stack
    stack.up(free_port(), agents=1, slots=2)
    answer = stack.client.post("/experiments", json=SWEEP)
    assert answer.status_code == 201, answer.text
    path = f"/experiments/{answer.json()['id']}"
    wait_until("trials to pause at their rung", lambda: stack.get(path)["trials"]["paused"] >= 2, SECONDS)
    before = jobs_of(stack, path)
    stack.kill_coordinator()
    stack.up(free_port(), agents=1, slots=2)
    done = wait_until("the end of the sweep", lambda: (seen := stack.get(path))["state"] != "running" and seen, SECONDS, every=0.5)
    assert (done["state"], done["trials"]["failed"]) == ("completed", 0), stack.logs()
    after = jobs_of(stack, path)
    assert before.items() <= after.items(), "no trial was begun again"
    ends = ends_of(stack, after)
    assert len(ends) == len(LRS)
    assert (ends[0], ends[-1]) == (RUNGS[:1], (*RUNGS, TOTAL)), (
        "how many go on depends on who comes first: nobody waits for a rung to be full"
    )
    best = after[done["best_trial"]]
    assert LRS[done["best_trial"]] in (1e-3, 3e-3, 3e-2)
    assert [step for step, _ in stack.raw_curve(best, "eval_loss")] == [*RUNGS, TOTAL], "evaluated at each rung"
    run_longer(stack, best)


def jobs_of(stack: Stack, path: str) -> dict[int, str]:
    return {trial["index"]: trial["job"]["id"] for trial in stack.get(f"{path}/trials")["items"] if trial["job"]}


def ends_of(stack: Stack, jobs: dict[int, str]) -> list[tuple[int, ...]]:
    """The steps at which the generations of each job ended, without repetition; every step was taken once."""
    ends = []
    for job_id in jobs.values():
        steps = [step for step, _ in stack.raw_curve(job_id)]
        assert steps == list(range(1, len(steps) + 1)), "no step is lost, and none done twice"
        ends.append(tuple(rung for rung in (*RUNGS, TOTAL) if rung <= len(steps)))
        assert len(steps) == ends[-1][-1], "it ended at a rung, and not a step later"
    return sorted(ends)


def run_longer(stack: Stack, job_id: str) -> None:
    """The winner goes on from its last checkpoint, as a job of its own."""
    (newest,) = [each for each in stack.get(f"/checkpoints/jobs/{job_id}")["items"] if each["latest"]]
    answer = stack.client.post(f"/checkpoints/{newest['id']}/restore", json={"steps": LONGER})
    assert answer.status_code == 201, answer.text
    job = stack.wait_for_state(answer.json()["id"], "completed", timeout=SECONDS)
    assert job["progress"]["step"] == LONGER
