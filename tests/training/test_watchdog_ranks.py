"""What real ranks say of themselves when one of them does not get on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.training.link import Joined, Moving, Stalled
from tests.faults import Fault, faulty_job, go_on
from tests.gangs import RunningGang
from tests.training.conftest import MakeJob

FAULT_STEP = 20
STEPS = 24
IMPATIENT = {"fault_tolerance": {"recovery": "close_up", "hang_seconds": 2}}


def start(make_job: MakeJob, folder: Path, kind: str, **changes: Any) -> RunningGang:
    return make_job(faulty_job(folder, Fault(1, FAULT_STEP, kind), steps=STEPS, **changes)).start(2)


def at_the_fault(said: Stalled) -> bool:
    """Whether it is of the step with the fault: on a machine that stops one of the ranks for half a second, the other says so of an earlier one."""
    return said.step == FAULT_STEP


def stalled_there(gang: RunningGang) -> Stalled:
    return gang.agent.until(1, 0, Stalled, at_the_fault)


def overdue(gang: RunningGang, rank: int) -> Stalled:
    return gang.agent.until(1, rank, Stalled, lambda said: at_the_fault(said) and said.overdue)


def finish_without(gang: RunningGang, rank: int) -> None:
    gang.close_up(1 - rank)
    gang.agent.until(2, 0, Joined)
    gang.kill(rank)
    assert [end.exit_code for end in gang.wait()] == [-9 if each == rank else 0 for each in range(2)]


@pytest.mark.parametrize("reproducible", [True, False])
def test_who_waits_for_a_stopped_peer_says_in_which_call(make_job: MakeJob, tmp_path: Path, reproducible: bool) -> None:
    gang = start(make_job, tmp_path / "code", "SIGSTOP", reproducible=reproducible)
    stalled = stalled_there(gang)
    assert (stalled.phase, stalled.unanswered) == ("exchange", ())
    assert stalled.waits == stalled.recent[-1]
    assert stalled.waits.number > FAULT_STEP
    assert stalled.limit <= stalled.seconds < stalled.patience
    finish_without(gang, 1)


def test_who_is_stuck_at_work_names_the_line(make_job: MakeJob, tmp_path: Path) -> None:
    gang = start(make_job, tmp_path / "code", "loop", **IMPATIENT)
    stuck, waiting = overdue(gang, 1), overdue(gang, 0)
    assert (stuck.phase, stuck.waits) == ("forward", None)
    assert stuck.where.startswith("break_by in faulty_task.py:")
    assert waiting.waits is not None
    finish_without(gang, 1)


def test_a_collective_of_the_users_own_is_named(make_job: MakeJob, tmp_path: Path) -> None:
    gang = start(make_job, tmp_path / "code", "mismatch", **IMPATIENT)
    alone = overdue(gang, 1)
    assert alone.waits is not None
    assert alone.waits.what.startswith("torch.distributed.broadcast of its own at break_by in faulty_task.py:")
    finish_without(gang, 1)


def test_who_holds_the_interpreters_lock_says_nothing_and_its_peer_does(make_job: MakeJob, tmp_path: Path) -> None:
    gang = start(make_job, tmp_path / "code", "native", **IMPATIENT)
    overdue(gang, 0)
    assert not [said for said in gang.agent.heard[1, 1] if isinstance(said, Stalled) and at_the_fault(said)]
    finish_without(gang, 1)


def test_who_goes_on_says_so(make_job: MakeJob, tmp_path: Path) -> None:
    gang = start(make_job, tmp_path / "code", "SIGSTOP")
    stalled_there(gang)
    earlier = [said for said in gang.agent.heard[1, 0] if isinstance(said, Moving)]
    go_on(gang.pids()[1])
    gang.agent.until(1, 0, Moving, lambda said: all(said is not each for each in earlier))
    assert [end.exit_code for end in gang.wait()] == [0, 0]
