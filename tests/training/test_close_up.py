"""A rank dies in the middle of a step; the others go on in the same processes, and not one step is lost or done twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.training.link import Broken, Joined, RankHello
from tests.faults import Fault, Moment, faulty_job
from tests.gangs import Job, RankEnd, RunningGang
from tests.training.conftest import MakeJob
from tests.waiting import wait_until

LAST_STEP = 12
FAULT_TIMEOUT_SECONDS = 60.0


def committed(*lives: RankEnd) -> dict[int, float]:
    """The job's curve over the generations' leaders: each step once."""
    curve: dict[int, float] = {}
    for life in lives:
        assert not curve.keys() & life.curve("loss").keys(), "a step was told twice"
        curve |= life.curve("loss")
    return curve


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    """The losses of one process, which are those of any number of ranks to the last bit."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return Job(folder / "job", faulty_job(folder / "code", nodes=1)).run()[0].curve("loss")


def survive(gang: RunningGang, *survivors: int) -> None:
    for rank in survivors:
        gang.agent.until(1, rank, Broken)
    gang.close_up(*survivors)


@pytest.mark.parametrize("moment", ["data", "loss", "backward", "update"])
def test_one_of_two_dies_and_the_other_finishes_alone(
    make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float], moment: Moment
) -> None:
    gang = make_job(faulty_job(tmp_path / "code", Fault(rank=1, step=5, moment=moment))).start(2)
    survive(gang, 0)
    survivor, dead = gang.wait()
    assert (survivor.exit_code, dead.exit_code) == (0, -9), gang.left(2, 0).output
    after = gang.left(2, 0)
    assert after.result is not None
    assert (after.result.outcome, after.result.step) == ("completed", LAST_STEP)
    curve = committed(survivor, after)
    assert sorted(curve) == list(range(1, LAST_STEP + 1))
    assert curve == undisturbed  # to the last bit


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_one_of_three_dies_and_two_share_its_micro_batches(
    make_job: MakeJob, tmp_path: Path, undisturbed: dict[int, float], victim: int
) -> None:
    gang = make_job(faulty_job(tmp_path / "code", Fault(victim, step=6, moment="backward"), nodes=3)).start(3)
    rest = [rank for rank in range(3) if rank != victim]
    pids = gang.pids()
    survive(gang, *rest)
    gang.agent.until(2, 0, Joined)
    assert [gang.agent.heard[2, rank][0].pid for rank in (0, 1)] == [pids[rank] for rank in rest]
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [-9 if rank == victim else 0 for rank in range(3)]
    curve = ends[0].curve("loss") | gang.left(2, 0).curve("loss")
    assert sorted(curve) == list(range(1, LAST_STEP + 1))
    assert curve == undisturbed  # to the last bit


def test_survivors_are_freed_without_waiting_for_a_time_out_when_a_peer_is_silent(make_job: MakeJob, tmp_path: Path) -> None:
    gang = make_job(faulty_job(tmp_path / "code", Fault(rank=2, step=4, kind="SIGSTOP"), nodes=3)).start(3)
    wait_until((tmp_path / "code" / "fault.2.4.SIGSTOP.done").exists, "the fault", seconds=FAULT_TIMEOUT_SECONDS)
    gang.close_up(0, 1)
    gang.agent.until(2, 0, Joined)
    gang.kill(2)
    first, second, stopped = gang.wait()
    assert (first.exit_code, second.exit_code, stopped.exit_code) == (0, 0, -9)
    assert sorted(committed(first, gang.left(2, 0))) == list(range(1, LAST_STEP + 1))


def test_a_second_fault_raises_the_generation_again(make_job: MakeJob, tmp_path: Path) -> None:
    faults = (Fault(rank=1, step=4), Fault(rank=2, step=7, moment="update"))
    gang = make_job(faulty_job(tmp_path / "code", *faults, nodes=3)).start(3)
    survive(gang, 0, 2)
    gang.agent.until(2, 0, Broken)
    gang.close_up(0)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, -9]
    assert sorted(committed(ends[0], gang.left(2, 0), gang.left(3, 0))) == list(range(1, LAST_STEP + 1))


def test_a_generation_that_never_stood_is_skipped(make_job: MakeJob, tmp_path: Path) -> None:
    gang = make_job(faulty_job(tmp_path / "code", Fault(rank=1, step=4), nodes=3)).start(3)
    for rank in (0, 2):
        gang.agent.until(1, rank, Broken)
    gang.close_up(0, 2, unnotified=(2,))
    gang.agent.until(2, 0, RankHello)  # it waits there for one that will not come
    gang.close_up(0, 2)
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [0, -9, 0]
    assert sorted(committed(ends[0], gang.left(3, 0))) == list(range(1, LAST_STEP + 1))
