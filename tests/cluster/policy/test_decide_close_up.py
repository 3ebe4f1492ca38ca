"""When a job closes up: what is known of its ranks -> which of them go on, and why."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from paceline.cluster.policy.decide import decide
from paceline.cluster.policy.decisions import Regroup, Restart, Stop
from paceline.cluster.policy.recovery import BROKEN_SECONDS, STEPLESS_GENERATIONS
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from tests.cluster.policy.test_decide import NOW, completed, crashed, job, paused, rank, report

LONG_AGO = NOW - timedelta(seconds=BROKEN_SECONDS)
LOST = rank(1, RankState.LOST)
SILENT = rank(1, reachable=False)


def killed(number: int, **known: Any) -> RankView:
    return crashed(number, **{"failure": report(number, "signal")} | known)


def broken(number: int, **known: Any) -> RankView:
    return rank(number, failure=report(number, "peer_lost"), **known)


def witness(number: int, *ended: int) -> RankView:
    """Broken, and has seen whose processes had ended."""
    return rank(number, failure=msgspec.structs.replace(report(number, "peer_lost"), ended=ended))


def carried(number: int, state: RankState = RankState.STARTING, **known: Any) -> RankView:
    return rank(number, state, process_kept=True, **known)


def gang(*ranks: RankView, state: JobState = JobState.RUNNING, least: int | None = 1, **known: Any) -> JobView:
    return job(state, *ranks, min_ranks=least, **known)


@pytest.mark.parametrize(
    ("view", "survivors"),
    [
        (gang(rank(0), killed(1)), (0,)),
        (gang(killed(0), rank(1), broken(2)), (1, 2)),  # without waiting for the survivors' word
        (gang(rank(0), LOST, rank(2)), (0, 2)),
        (gang(broken(0), SILENT, rank(2)), (0, 2)),
        (gang(witness(0, 1), SILENT, rank(2)), (0, 2)),
        (gang(rank(0), killed(1), rank(2, reachable=False)), (0,)),  # whoever cannot be told cannot follow
        (gang(rank(0), killed(1, drained=False)), (0,)),
        (gang(broken(0, updated_at=LONG_AGO), broken(1, updated_at=LONG_AGO)), (0, 1)),
        (gang(carried(0), killed(1, process_kept=True), carried(2), state=JobState.RECOVERING), (0, 2)),
        (gang(rank(0), killed(1), restarts=3), (0,)),
        (gang(rank(0), killed(1), desired=Intent.PAUSE), (0,)),  # the pause comes once they stand again
    ],
)
def test_the_survivors_go_on(view: JobView, survivors: tuple[int, ...]) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Regroup)
    assert (decision.to, decision.members.survivors, decision.counts_as_restart) == (JobState.RECOVERING, survivors, False)
    assert "generation 2" in decision.why


@pytest.mark.parametrize(
    ("view", "to"),
    [
        (gang(rank(0), killed(1), least=None), JobState.RECOVERING),
        (gang(rank(0), killed(1), least=2), JobState.RECOVERING),
        (gang(killed(0), killed(1)), JobState.RECOVERING),
        (gang(rank(0), killed(1), state=JobState.STARTING), JobState.RECOVERING),  # nothing had begun
        (gang(rank(0), killed(1), state=JobState.RECOVERING), JobState.RECOVERING),
        (gang(completed(0), killed(1), rank(2)), JobState.RECOVERING),  # the run was just ending
        (gang(rank(0), killed(1, failure=report(1, "invalid_input"))), JobState.STOPPING),
        (gang(rank(0), killed(1, failure=report(1, "loss_not_finite"))), JobState.STOPPING),
        (gang(rank(0), killed(1, failure=report(1, "rolled_back"))), JobState.RECOVERING),  # whoever is left is to go back too
        (gang(rank(0), crashed(1)), JobState.RECOVERING),  # an exception of the code would come again on another rank
        (gang(rank(0), killed(1), least=2, restarts=3), JobState.STOPPING),
        (gang(rank(0), killed(1), desired=Intent.CANCEL), JobState.STOPPING),
    ],
)
def test_otherwise_it_restarts_or_stops(view: JobView, to: JobState) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Restart | Stop)
    assert decision.to is to


STEPLESS: dict[str, Any] = {"stepless": STEPLESS_GENERATIONS}


def both_broken(**known: Any) -> JobView:
    return gang(broken(0, updated_at=LONG_AGO), broken(1, updated_at=LONG_AGO), **known)


def test_closing_up_again_and_again_without_a_step_is_one_of_the_restarts() -> None:
    """A fault that came again in each generation went on for ever, and nothing counted it."""
    free = decide(both_broken(stepless=STEPLESS_GENERATIONS - 1), NOW)
    assert isinstance(free, Regroup)
    assert not free.counts_as_restart
    counted = decide(both_broken(**STEPLESS, restarts=2), NOW)
    assert isinstance(counted, Regroup)
    assert (counted.members.survivors, counted.counts_as_restart) == ((0, 1), True)
    assert counted.why == (
        "rank 0, 1 lost a connection, and every rank is alive: rank 0 broke; the last 3 generations made no step; "
        "ranks 0, 1 of 2 continue as generation 2: 3 of at most 3 restarts"
    )
    ended = decide(both_broken(**STEPLESS, restarts=3), NOW)
    assert isinstance(ended, Stop)
    assert ended.why == "rank 0, 1 lost a connection, and every rank is alive: rank 0 broke; restart limit reached (3 of 3)"


def test_a_rank_that_dies_as_it_joins_again_and_again_costs_its_job_no_restart() -> None:
    """Without it the others are another gang; its slot is given up after some tries."""
    decision = decide(gang(rank(0), killed(1), **STEPLESS, restarts=3), NOW)
    assert isinstance(decision, Regroup)
    assert not decision.counts_as_restart


def test_nodes_that_are_lost_between_two_steps_are_no_restarts() -> None:
    decision = decide(gang(rank(0), LOST, **STEPLESS, restarts=3), NOW)
    assert isinstance(decision, Regroup)
    assert not decision.counts_as_restart


@pytest.mark.parametrize(
    "view",
    [
        gang(rank(0), SILENT),  # an agent that is away is no evidence against its ranks
        gang(broken(0), broken(1)),  # somebody is about to say who died
        gang(broken(0), SILENT, least=None),
        gang(witness(0, 2), SILENT, rank(2)),  # the agent of the one that has ended is about to say so
        gang(carried(0), carried(1), state=JobState.RECOVERING, desired=Intent.PAUSE),
    ],
)
def test_it_waits(view: JobView) -> None:
    assert decide(view, NOW) is None


def saving(*ranks: RankView, **known: Any) -> JobView:
    """Its user has asked for a pause, and its ranks are at it."""
    return gang(*ranks, state=JobState.STOPPING, **{"end_reason": EndReason.PAUSED, "desired": Intent.PAUSE} | known)


@pytest.mark.parametrize(
    ("view", "survivors"),
    [
        (saving(rank(0), killed(1)), (0,)),
        (saving(rank(0), LOST, broken(2)), (0, 2)),
        (saving(broken(0), SILENT, rank(2)), (0, 2)),
        (saving(broken(0, updated_at=LONG_AGO), broken(1, updated_at=LONG_AGO)), (0, 1)),
        (saving(rank(0), killed(1), restarts=3), (0,)),
    ],
)
def test_a_fault_while_pausing_leaves_the_save_to_the_survivors(view: JobView, survivors: tuple[int, ...]) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Regroup)
    assert (decision.to, decision.members.survivors, decision.counts_as_restart) == (JobState.RECOVERING, survivors, False)


@pytest.mark.parametrize(
    "view",
    [
        saving(rank(0), killed(1), least=None),
        saving(rank(0), killed(1), least=2),
        saving(paused(0), killed(1), rank(2)),  # it has saved: the checkpoint is of that very step
        saving(rank(0), crashed(1)),  # it would come again
    ],
)
def test_otherwise_the_pause_is_from_the_newest_checkpoint(view: JobView) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Stop)
    assert decision.reason is EndReason.PAUSED


def test_a_cancelled_pause_stays_cancelled() -> None:
    decision = decide(saving(rank(0), killed(1), desired=Intent.CANCEL), NOW)
    assert decision is not None
    assert (decision.to, decision.reason) == (JobState.STOPPING, EndReason.CANCELLED)


def test_it_runs_again_once_every_carried_rank_has_joined() -> None:
    decision = decide(gang(carried(0, RankState.RUNNING), state=JobState.RECOVERING), NOW)
    assert decision is not None
    assert decision.to is JobState.RUNNING


def test_a_silent_node_is_named_as_the_cause() -> None:
    decision = decide(gang(broken(0), SILENT), NOW)
    assert decision is not None
    assert decision.reason is EndReason.NODE_LOST
    assert "agent of rank 1 is gone" in decision.why
