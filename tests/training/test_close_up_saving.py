"""A rank dies inside a save; the others come out of it, go on in the same processes, and save that step again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.distributed.solo_group import SoloGroup
from paceline.training.link import Broken
from paceline.training.saving import checkpoint
from tests.faults import Fault, Moment, faulty_job
from tests.gangs import Job, RunningGang
from tests.training.conftest import MakeJob
from tests.waiting import wait_until

LAST_STEP = 12
EVERY = 4
FAULT_TIMEOUT_SECONDS = 60.0
AT_ONCE: dict[str, Any] = {"checkpoint": {"every_steps": EVERY, "asynchronous": False}}
BEHIND: dict[str, Any] = {"checkpoint": {"every_steps": EVERY}}


def assert_saved_again(job: Job, gang: RunningGang, victim: int, survivors: int, *, was_published: bool = False) -> None:
    """By the second generation: the step whose save broke off, and all that follow it."""
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [-9 if rank == victim else 0 for rank in range(survivors + 1)], gang.left(2, 0).output
    after = gang.left(2, 0)
    assert sorted(ends[0].curve("loss") | after.curve("loss")) == list(range(1, LAST_STEP + 1))
    told = [(event["generation"], event["step"]) for event in after.events_of("checkpoint_committed")]
    assert told == [(1, 4)] * was_published + [(2, 4), (2, 8), (2, 12)]  # rank 0 died before it could tell of the first
    for event in after.events_of("checkpoint_committed"):
        assert checkpoint.verify(SoloGroup(), Path(event["directory"])).world_size == survivors + (event["generation"] == 1)
    assert not list(job.checkpoints.glob("*.tmp"))


MOMENTS: tuple[tuple[int, Moment], ...] = ((1, "plan"), (0, "write"), (1, "hash"), (0, "published"))


@pytest.mark.parametrize(("victim", "moment"), MOMENTS)
def test_a_rank_killed_inside_a_save_costs_the_others_nothing(make_job: MakeJob, tmp_path: Path, victim: int, moment: Moment) -> None:
    job = make_job(faulty_job(tmp_path / "code", Fault(victim, step=EVERY, moment=moment), nodes=2, **AT_ONCE))
    gang = job.start(2)
    (survivor,) = {0, 1} - {victim}
    gang.agent.until(1, survivor, Broken)  # by itself, long before anybody would end it
    gang.close_up(survivor)
    assert_saved_again(job, gang, victim, survivors=1, was_published=moment == "published")


@pytest.mark.parametrize(("victim", "moment"), [*MOMENTS[1:], (0, "publish")])
def test_a_save_that_breaks_off_behind_steps_is_made_up_for_by_the_next_generation(
    make_job: MakeJob, tmp_path: Path, victim: int, moment: Moment
) -> None:
    """Of the step that it has come to: the one that was being written is over."""
    job = make_job(faulty_job(tmp_path / "code", Fault(victim, step=EVERY, moment=moment), nodes=2, **BEHIND))
    gang = job.start(2)
    survivor = 1 - victim
    gang.agent.until(1, survivor, Broken)
    gang.close_up(survivor)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [-9 if rank == victim else 0 for rank in range(2)], gang.left(2, 0).output
    after = gang.left(2, 0)
    assert sorted(ends[0].curve("loss") | after.curve("loss")) == list(range(1, LAST_STEP + 1))
    (carried,) = after.events_of("carried_on")
    told = [(event["generation"], event["step"]) for event in after.events_of("checkpoint_committed")]
    made_up_for = next(step for generation, step in told if generation == 2)
    # With the next step; or at once, where it broke off while a step that is to be saved waited for it.
    assert made_up_for == carried["step"] + 1 or made_up_for == carried["step"] == 2 * EVERY
    due = [(2, step) for step in range(1, LAST_STEP + 1) if step == made_up_for or (step > made_up_for and step % EVERY == 0)]
    assert told == [(1, EVERY)] * (moment == "published") + due
    for event in after.events_of("checkpoint_committed"):
        checkpoint.verify(SoloGroup(), Path(event["directory"]))
    assert not list(job.checkpoints.glob("*.tmp"))


@pytest.mark.parametrize("mode", [AT_ONCE, BEHIND])
def test_no_checkpoint_is_ahead_of_the_curve_that_led_to_it(make_job: MakeJob, tmp_path: Path, mode: dict[str, Any]) -> None:
    """Nobody survives who could tell the last step again."""
    job = make_job(faulty_job(tmp_path / "code", Fault(0, step=EVERY, moment="published"), nodes=1, **mode))
    (end,) = job.start(1).wait()
    assert end.exit_code == -9
    assert job.newest_first()
    assert sorted(end.curve("loss"))[:EVERY] == list(range(1, EVERY + 1))


#: gloo forgets now and then to wake a call whose sockets are closed; here it is never woken.
DEAF = "\nimport paceline.distributed.abort\npaceline.distributed.abort.shut_down = lambda socket: None\n"


def test_ranks_that_wait_in_a_save_for_a_silent_one_are_freed_without_the_help_of_gloo(make_job: MakeJob, tmp_path: Path) -> None:
    code = tmp_path / "code"
    job = make_job(faulty_job(code, Fault(2, step=EVERY, kind="SIGSTOP", moment="write"), nodes=3, **AT_ONCE))
    (code / "faulty_task.py").write_text((code / "faulty_task.py").read_text() + DEAF)
    gang = job.start(3)
    wait_until((code / f"fault.2.{EVERY}.SIGSTOP.done").exists, "the fault", seconds=FAULT_TIMEOUT_SECONDS)
    gang.close_up(0, 1)
    for rank in (0, 1):
        gang.agent.until(1, rank, Broken)
    gang.kill(2)
    assert_saved_again(job, gang, 2, survivors=2)
