"""Deadlines that ran out while the coordinator was away: nobody could report to it, and nothing follows from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paceline.cluster.policy.awaited_reports import is_awaited
from paceline.cluster.policy.decide import PAUSE_SECONDS, decide, wants_slots
from paceline.cluster.policy.decisions import Decision, Regroup, Restart, Stop
from paceline.cluster.policy.views import RECONNECT_SECONDS, JobView, RankView
from paceline.cluster.states import EndReason, JobState, RankState
from tests.cluster.policy.test_decide import (
    ASSIGNED,
    CANCEL,
    NOW,
    PAUSE,
    RUNNING,
    RUNNING_1,
    STARTING,
    crashed,
    job,
    rank,
    report,
    stopping,
)
from tests.cluster.policy.test_decide_close_up import broken, gang, killed
from tests.cluster.policy.test_decide_resizing import newcomer, resizing, stayer

BEFORE = NOW - timedelta(seconds=200)
OLD: dict[str, Any] = {"state_since": BEFORE, "generation_since": BEFORE}
ENDED = {**OLD, "generation_ended_at": BEFORE}
OVER = {"time_limit": 100.0}


def old(known: RankView) -> RankView:
    return replace(known, updated_at=BEFORE)


def up(view: JobView, since: timedelta) -> JobView:
    """The same job, of a coordinator that has been up since so long before now."""
    ranks = tuple(replace(each, up_since=NOW - since) for each in view.ranks)
    return replace(view, ranks=ranks, up_since=NOW - since)


VIEWS = {
    "its ranks may have joined": job(JobState.STARTING, old(STARTING), old(ASSIGNED), **OLD),
    "its ranks may have joined, and it may not restart": job(JobState.STARTING, old(STARTING), max_restarts=0, **OLD),
    "its ranks may have saved": stopping(EndReason.PAUSED, old(RUNNING), old(RUNNING_1), **OLD),
    "its old ranks may have ended": job(JobState.RECOVERING, crashed(0), old(RUNNING_1), **ENDED),
    "all its ranks may have ended": stopping(EndReason.COMPLETED, old(RUNNING), **ENDED),
    "its joiner may have entered": resizing(old(stayer(0, RankState.STARTING)), old(newcomer(1)), **OLD),
    "its broken ranks may have said who died": gang(old(broken(0)), old(broken(1)), **OLD),
    "it may save at its time limit": job(JobState.STARTING, old(STARTING), **OLD, **OVER),
    "it may save for a pause": job(JobState.STARTING, old(STARTING), **OLD, **PAUSE),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_coordinator_that_was_away_gives_reports_time_to_come(view: JobView) -> None:
    assert decide(view, NOW) is not None, "it would have been overdue"
    assert decide(up(view, timedelta(seconds=1)), NOW) is None
    assert decide(up(view, timedelta(seconds=199)), NOW) == decide(view, NOW), "overdue by its own time"


def test_a_job_is_placed_once_the_last_saves_of_its_ranks_had_time_to_come() -> None:
    culprit = crashed(0, drained=False, behind=True, updated_at=BEFORE)
    view = job(JobState.RECOVERING, culprit, **ENDED)
    assert wants_slots(view, NOW)
    assert not wants_slots(up(view, timedelta(seconds=1)), NOW)
    assert wants_slots(up(view, timedelta(seconds=31)), NOW)


def test_a_restart_waits_for_the_culprits_report() -> None:
    view = job(JobState.RUNNING, crashed(0, failure=report(0, "peer_lost"), updated_at=BEFORE), RUNNING_1)
    decision = decide(view, NOW)
    assert isinstance(decision, Restart)
    assert not is_awaited(view, decision, NOW)
    assert is_awaited(up(view, timedelta(seconds=0.5)), decision, NOW)


AWAY = replace(rank(2), reachable=False, unheard=True)


@pytest.mark.parametrize(
    "view",
    [
        gang(killed(0), RUNNING_1, AWAY, least=1, **OLD),
        gang(killed(0), RUNNING_1, AWAY, least=2, **OLD),
        gang(broken(0), RUNNING_1, AWAY, **OLD),
        gang(killed(0), RUNNING_1, AWAY, least=3, max_restarts=0, **OLD),
        stopping(EndReason.PAUSED, killed(0), RUNNING_1, AWAY, min_ranks=3, max_restarts=3),
    ],
    ids=["it would be left out", "too few would be left", "its node would be lost", "the job would end", "it would not save"],
)
def test_healthy_ranks_are_not_given_up_while_their_agents_connect_again_after_a_stall(view: JobView) -> None:
    """A rank had crashed meanwhile, and its agent was the first to be back."""
    decision = decide(view, NOW)
    assert decision is not None
    assert not is_awaited(view, decision, NOW)
    assert is_awaited(up(view, timedelta(seconds=1)), decision, NOW)
    assert not is_awaited(up(view, timedelta(seconds=RECONNECT_SECONDS)), decision, NOW)
    back = replace(view, ranks=(*view.ranks[:2], rank(2)))
    assert not is_awaited(up(back, timedelta(seconds=1)), decision, NOW)


def test_an_agent_that_goes_away_after_the_coordinator_is_back_is_not_waited_for() -> None:
    """A node that died within fifteen seconds of the start of its coordinator stood for thirteen of them, though its peers had seen it die."""
    for unheard in (True, False):
        view = up(gang(broken(0), RUNNING_1, replace(AWAY, unheard=unheard), **OLD), timedelta(seconds=2))
        decision = decide(view, NOW)
        assert isinstance(decision, Regroup)
        assert is_awaited(view, decision, NOW) is unheard


def test_a_cancel_and_a_pause_do_not_wait_for_agents_that_connect_again() -> None:
    for wish in (CANCEL, PAUSE):
        view = up(gang(RUNNING, RUNNING_1, AWAY, **OLD, **wish), timedelta(seconds=1))
        decision = decide(view, NOW)
        assert isinstance(decision, Stop)
        assert not is_awaited(view, decision, NOW)


@pytest.mark.parametrize("view", [VIEWS["it may save at its time limit"], VIEWS["it may save for a pause"]], ids=["limit", "pause"])
def test_a_job_that_waits_only_for_its_agents_to_come_back_waits_for_no_longer(view: JobView) -> None:
    found: Callable[[float], Decision | None] = lambda seconds: decide(up(view, timedelta(seconds=seconds)), NOW)  # noqa: E731
    assert found(RECONNECT_SECONDS - 1) is None
    assert found(RECONNECT_SECONDS) == decide(view, NOW)
    placed_since = replace(view, generation_since=NOW - timedelta(seconds=110))
    assert decide(up(placed_since, timedelta(seconds=200)), NOW) == decide(placed_since, NOW)


def test_a_job_does_not_wait_for_the_old_time_to_come_again_after_the_clock_was_set_back() -> None:
    ahead = NOW + timedelta(hours=2)
    view = stopping(EndReason.PAUSED, replace(RUNNING, updated_at=ahead), state_since=ahead, generation_since=ahead)
    assert decide(up(view, timedelta(seconds=PAUSE_SECONDS - 1)), NOW) is None
    assert decide(up(view, timedelta(seconds=PAUSE_SECONDS)), NOW) is not None
