"""Faults that nothing dies of, on a whole stack: a rank that is stopped, stuck, or at another collective than the others."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.stack import Stack, wait_until
from tests.faults import Fault, faulty_job, go_on

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

STEPS = 60
#: After enough steps to know how long one takes.
FAULT_STEP = 30
#: For a machine that has more to do; the figures are `scripts/bench/recovery.py`'s.
NOTICE_SECONDS = 60.0
CLOSE_UP: dict[str, Any] = {"recovery": "close_up", "max_restarts": 0}
#: Long enough for a crowded machine, short enough for a test.
IMPATIENT = {"hang_seconds": 6}


def submit(stack: Stack, folder: Path, *faults: Fault, nodes: int = 3, **fault_tolerance: Any) -> str:
    job = faulty_job(folder, *faults, nodes=nodes, steps=STEPS, fault_tolerance=CLOSE_UP | fault_tolerance)
    return stack.submit(job | {"name": f"silent-{folder.parent.name}"[:60].lower().replace("_", "-").strip("-")})


def the_incident(stack: Stack, job_id: str) -> dict[str, Any]:
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    return dict(incident)


def assert_closed_up(stack: Stack, job_id: str, culprit: int, *words: str) -> None:
    """The others have gone on, perhaps with a replacement, and every step exactly once; the incident names who was to blame, and
    what it missed."""
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=NOTICE_SECONDS)
    assert (done["state"], done["restarts"]) == ("completed", 0), done
    assert done["generation"] in (2, 3), done
    assert sorted(step for step, _ in stack.raw_curve(job_id)) == list(range(1, STEPS + 1))
    incident = the_incident(stack, job_id)
    assert (incident["action"], incident["cause"], incident["steps_lost"]) == ("closed_up", "hang", 0), incident
    assert (incident["culprit"]["kind"], incident["culprit"]["rank"]) == ("hang", culprit), incident
    for word in words:
        assert word in incident["why"], incident["why"]


def assert_gone(pid: int) -> None:
    wait_until(f"the end of process {pid}", lambda: not psutil.pid_exists(pid), NOTICE_SECONDS)


@pytest.mark.parametrize("moment", ["loss", pytest.param("update", marks=pytest.mark.release)])
@pytest.mark.parametrize("victim", [0, pytest.param(2, marks=pytest.mark.release)])
def test_a_stopped_rank_is_left_behind(three_agents: Stack, tmp_path: Path, victim: int, moment: Any) -> None:
    stack, fault = three_agents, Fault(victim, FAULT_STEP, "SIGSTOP", moment)
    job_id = submit(stack, tmp_path / "code", fault)
    missed = FAULT_STEP + (moment == "update")  # by then the others have all they need for this one
    assert_closed_up(stack, job_id, victim, f"rank {victim} is stopped by a signal", "wait(s) in call", f"of step {missed}")
    assert_gone(int((tmp_path / "code" / f"fault.{victim}.{FAULT_STEP}.SIGSTOP.done").read_text()))


def test_a_rank_in_an_endless_loop_is_left_behind_and_its_line_is_named(three_agents: Stack, tmp_path: Path) -> None:
    job_id = submit(three_agents, tmp_path / "code", Fault(1, FAULT_STEP, "loop"), **IMPATIENT)
    assert_closed_up(three_agents, job_id, 1, "rank 1 is in forward", "faulty_task.py", "wait(s) in call")


@pytest.mark.release
def test_a_rank_that_is_stuck_with_the_interpreters_lock_is_left_behind(three_agents: Stack, tmp_path: Path) -> None:
    job_id = submit(three_agents, tmp_path / "code", Fault(1, FAULT_STEP, "native"), **IMPATIENT)
    assert_closed_up(three_agents, job_id, 1, "rank 1 is not heard of", "wait(s) in call")


def test_ranks_in_different_collectives_start_over_and_both_are_named(three_agents: Stack, tmp_path: Path) -> None:
    stack = three_agents
    job_id = submit(stack, tmp_path / "code", Fault(1, FAULT_STEP, "mismatch"), max_restarts=1, **IMPATIENT)
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=2 * NOTICE_SECONDS)
    assert (done["state"], done["restarts"]) == ("completed", 1), done
    why = the_incident(stack, job_id)["why"]
    assert "mismatched calls: rank 1 is at torch.distributed.broadcast of its own" in why
    assert "faulty_task.py" in why
    assert "rank 0 is at call" in why


def test_a_rank_that_is_stopped_and_continued_in_time_is_not_harmed(three_agents: Stack, tmp_path: Path) -> None:
    stack, done = three_agents, tmp_path / "code" / f"fault.1.{FAULT_STEP}.SIGSTOP.done"
    job_id = submit(stack, tmp_path / "code", Fault(1, FAULT_STEP, "SIGSTOP"))
    wait_until("the stop", lambda: done.exists() and done.read_text(), NOTICE_SECONDS, every=0.01)
    go_on(int(done.read_text()))
    ended = stack.wait_for_state(job_id, "completed", "failed", timeout=NOTICE_SECONDS)
    assert (ended["state"], ended["generation"]) == ("completed", 1), ended
    assert stack.get(f"/training/jobs/{job_id}/incidents") == []


def test_a_job_of_one_rank_waits_while_it_is_stopped(three_agents: Stack, tmp_path: Path) -> None:
    stack, done = three_agents, tmp_path / "code" / f"fault.0.{FAULT_STEP}.SIGSTOP.done"
    job_id = submit(stack, tmp_path / "code", Fault(0, FAULT_STEP, "SIGSTOP"), nodes=1, recovery="restart")
    wait_until("the stop", lambda: done.exists() and done.read_text(), NOTICE_SECONDS)
    deadline = time.monotonic() + 5
    wait_until("five seconds", lambda: time.monotonic() > deadline, 10)
    assert stack.job(job_id)["state"] == "running"
    go_on(int(done.read_text()))
    ended = stack.wait_for_state(job_id, "completed", "failed", timeout=NOTICE_SECONDS)
    assert (ended["state"], ended["generation"]) == ("completed", 1), ended


@pytest.mark.release
def test_a_rank_that_is_stopped_when_a_pause_is_asked_for_ends_in_a_pause(three_agents: Stack, tmp_path: Path) -> None:
    stack, done = three_agents, tmp_path / "code" / f"fault.1.{FAULT_STEP}.SIGSTOP.done"
    job_id = submit(stack, tmp_path / "code", Fault(1, FAULT_STEP, "SIGSTOP"), max_restarts=1, recovery="restart")
    wait_until("the stop", lambda: done.exists() and done.read_text(), NOTICE_SECONDS, every=0.01)
    stack.change("PUT", job_id, "pause")
    stack.wait_for_state(job_id, "paused", timeout=NOTICE_SECONDS)
    assert_gone(int(done.read_text()))
