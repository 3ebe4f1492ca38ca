"""Scripts: pause and draining of those that say that they save, and what the ends of all are taken for."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paceline.cluster.policy.decide import STOP_SECONDS, decide
from paceline.cluster.policy.decisions import Stop
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import EndReason, JobState, RankState
from paceline.training.link import FailureReport
from tests.cluster.policy.test_decide import (
    ASSIGNED,
    CANCEL,
    ENDED,
    NOW,
    PAUSE,
    RUNNING,
    SCRIPT,
    completed,
    crashed,
    job,
    paused,
    rank,
    report,
)

SAVES = SCRIPT | {"saves": True}


def ended(number: int, *, ordered: bool = True, **said: Any) -> RankView:
    return crashed(
        number, failure=FailureReport(**{"kind": "signal", "rank": number, "message": "", "ordered": ordered, "time": 9.0, **said})
    )


def stopping(*ranks: RankView, reason: EndReason = EndReason.PAUSED, **known: Any) -> JobView:
    return job(JobState.STOPPING, *ranks, **{"end_reason": reason, **ENDED, **SAVES, **known})


SIGTERMED = ended(0, message="killed by SIGTERM", signal="SIGTERM")
SHELL = ended(0, kind="exit", message="exited with code 143", exit_code=143)
KILLED = ended(1, message="did not end within 90 s of SIGTERM, and was killed", signal="SIGKILL")
DRAGGED = ended(1, kind="peer_lost", message="Connection closed by peer")


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.STARTING])
def test_a_pause_stops_the_ranks_of_a_script_and_costs_no_restart(state: JobState) -> None:
    ranks = (RUNNING, ASSIGNED) if state is JobState.STARTING else (RUNNING,)
    decision = decide(job(state, *ranks, **PAUSE, **SAVES), NOW)
    assert isinstance(decision, Stop)
    assert (decision.to, decision.reason, decision.ends_generation) == (JobState.STOPPING, EndReason.PAUSED, True)
    assert not decision.counts_as_restart


def test_the_history_says_how_a_script_is_paused() -> None:
    decision = decide(job(JobState.RUNNING, RUNNING, **PAUSE, **SAVES), NOW)
    assert decision is not None
    assert decision.why == "paused by its user: its ranks get SIGTERM, and 1m30s to save and exit"


@pytest.mark.parametrize(
    "ranks",
    [(paused(0), paused(1)), (SIGTERMED, paused(1)), (SHELL, paused(1)), (paused(0), DRAGGED), (completed(0), paused(1))],
    ids=["exit 0", "SIGTERM", "a shell's exit code", "dragged down", "the last one"],
)
def test_ranks_that_ended_as_they_were_told_leave_a_paused_job(ranks: tuple[RankView, ...]) -> None:
    decision = decide(stopping(*ranks), NOW)
    assert decision is not None
    assert (decision.to, decision.reason, decision.why) == (JobState.PAUSED, EndReason.PAUSED, "all its ranks are gone")


@pytest.mark.parametrize(
    ("rank_1", "why"),
    [
        (KILLED, "rank 1: did not end within 90 s of SIGTERM, and was killed; what had not been saved may be lost"),
        (crashed(1, failure=report(1)), "rank 1: rank 1 broke; what had not been saved may be lost"),
    ],
    ids=["killed after its grace", "raised as it saved"],
)
def test_a_rank_that_may_not_have_saved_is_told_of_and_the_job_paused(rank_1: RankView, why: str) -> None:
    decision = decide(stopping(SIGTERMED, rank_1, restarts=3), NOW)
    assert decision is not None
    assert (decision.to, decision.reason, decision.why) == (JobState.PAUSED, EndReason.PAUSED, why)


def test_a_script_that_had_come_to_its_end_is_completed() -> None:
    decision = decide(stopping(completed(0), completed(1)), NOW)
    assert decision is not None
    assert (decision.to, decision.reason) == (JobState.COMPLETED, EndReason.COMPLETED)


def test_a_pause_can_be_turned_into_a_cancel_and_ends_in_time() -> None:
    decision = decide(stopping(rank(0), **CANCEL), NOW)
    assert decision is not None
    assert decision.reason is EndReason.CANCELLED
    assert decide(stopping(rank(0)), NOW) is None
    late = decide(stopping(rank(0), state_since=NOW - timedelta(seconds=90 + STOP_SECONDS)), NOW)
    assert late is not None
    assert late.to is JobState.PAUSED


def test_only_a_script_that_saves_makes_way_for_a_drain() -> None:
    leaving = rank(0, leaving=True)
    assert decide(job(JobState.RUNNING, leaving, **SCRIPT), NOW) is None
    decision = decide(job(JobState.RUNNING, leaving, **SAVES), NOW)
    assert isinstance(decision, Stop)
    assert (decision.to, decision.reason, decision.ends_generation) == (JobState.STOPPING, EndReason.PREEMPTED, True)
    assert decision.why == "the node of rank 0 drains: its ranks get SIGTERM, and 1m30s to save and exit, and the job waits for other slots"
    end = decide(stopping(SIGTERMED, reason=EndReason.PREEMPTED), NOW)
    assert end is not None
    assert (end.to, end.reason) == (JobState.QUEUED, None)


def test_a_pause_while_it_waits_for_slots_after_a_fault_needs_no_second_end() -> None:
    view = job(JobState.RECOVERING, rank(0, RankState.EXITED, outcome="failed", drained=True), restarts=1, **PAUSE, **ENDED, **SAVES)
    decision = decide(view, NOW)
    assert decision is not None
    assert (decision.to, decision.counts_as_restart) == (JobState.STOPPING, False)


@pytest.mark.parametrize(
    "ranks",
    [
        (paused(0), paused(1)),
        (paused(0), rank(1)),
        (completed(0), paused(1)),
        (paused(0), crashed(1, failure=report(1, "peer_lost"))),
    ],
    ids=["all", "one", "the last one", "and its peer lost it"],
)
def test_a_script_that_ends_well_because_its_agent_was_told_to_end_has_not_completed(ranks: tuple[RankView, ...]) -> None:
    """`paceline down` made it completed: its ranks had saved, and exited with 0."""
    decision = decide(job(JobState.RUNNING, *ranks, restarts=3, **SCRIPT), NOW)
    assert decision is not None
    assert (decision.to, decision.reason, decision.counts_as_restart) == (JobState.RECOVERING, EndReason.NODE_LOST, False)
    assert re.search(r" was stopped, and the ranks? with it; it is started again, which does not count as a restart\Z", decision.why)


@pytest.mark.parametrize("state", [JobState.STOPPING, JobState.RECOVERING])
def test_ranks_that_may_take_long_to_save_are_waited_for(state: JobState) -> None:
    view = job(state, rank(0), end_reason=EndReason.CANCELLED, **SCRIPT)
    saving, overdue = ((NOW - timedelta(seconds=STOP_SECONDS + seconds)) for seconds in (89, 90))
    assert decide(replace(view, state_since=saving, generation_ended_at=saving), NOW) is None
    assert decide(replace(view, state_since=overdue, generation_ended_at=overdue), NOW) is not None
