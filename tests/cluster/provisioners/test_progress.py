"""Decisions about one launch: the next call of its provider, and where its answer leads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paceline.cluster.provisioners import progress
from paceline.cluster.provisioners.progress import LaunchMove, LaunchView, ProviderCall
from paceline.cluster.provisioners.provisioner import LaunchPhase, SeenLaunch
from paceline.cluster.states import LAUNCH_TRANSITIONS, OVER_LAUNCH_STATES, LaunchState, NodeState

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
VIEW = LaunchView(LaunchState.PENDING, NOW, wanted=True, asked=True, has_handle=True)


@pytest.mark.parametrize(
    ("changes", "call"),
    [
        ({"state": LaunchState.REQUESTED, "asked": False, "has_handle": False}, ProviderCall.LAUNCH),
        ({"state": LaunchState.REQUESTED, "asked": True, "has_handle": False, "wanted": False}, ProviderCall.LAUNCH),
        ({"state": LaunchState.REQUESTED, "asked": False, "has_handle": False, "wanted": False}, ProviderCall.NONE),
        ({"state": LaunchState.JOINED, "has_handle": False}, ProviderCall.LAUNCH),
        ({"state": LaunchState.JOINED}, ProviderCall.POLL),
        ({"state": LaunchState.TERMINATING, "wanted": False}, ProviderCall.TERMINATE),
    ],
    ids=["new", "cancelled-while-asked", "cancelled-before", "joined-without-a-handle", "joined", "terminating"],
)
def test_the_next_call(changes: dict[str, Any], call: ProviderCall) -> None:
    assert progress.next_call(replace(VIEW, **changes)) is call


def test_a_node_that_is_wanted_no_more_is_ended_once_it_has_drained() -> None:
    drains = replace(VIEW, state=LaunchState.JOINED, wanted=False, node=NodeState.DRAINING)
    waits = progress.before_call(drains, NOW)
    assert waits is not None
    assert (waits.to, waits.reason) == (LaunchState.JOINED, "its node is being drained")
    gone = progress.before_call(replace(drains, node=NodeState.GONE), NOW)
    assert gone is not None
    assert gone.to is LaunchState.TERMINATING


def test_a_lost_node_that_its_provider_has_ended_is_removed_and_a_living_one_is_not() -> None:
    ended = SeenLaunch(LaunchPhase.ENDED, "preempted")
    lost = replace(VIEW, state=LaunchState.JOINED, node=NodeState.LOST)
    assert progress.after_poll(lost, ended).drain == "its provider has ended it: preempted"
    assert progress.after_poll(replace(lost, node=NodeState.JOINING), ended).drain == "its provider has ended it: preempted"
    assert progress.after_poll(replace(lost, node=NodeState.READY), ended).drain == ""
    assert progress.after_poll(replace(lost, node=NodeState.GONE), ended).to is LaunchState.ENDED


def test_one_that_ends_before_it_has_joined_has_failed_and_one_that_has_left_has_not() -> None:
    ended = SeenLaunch(LaunchPhase.ENDED, "its agent left in order")
    started_again = replace(VIEW, state=LaunchState.RUNNING, node=NodeState.GONE)
    assert progress.after_poll(VIEW, ended).failure == "its agent left in order"
    assert progress.after_poll(started_again, ended) == LaunchMove(LaunchState.TERMINATING, "its agent left in order")


def test_one_that_could_not_be_ended_says_that_it_may_still_run() -> None:
    view = replace(VIEW, state=LaunchState.TERMINATING, failures=progress.MOST_ENDINGS - 1)
    move = progress.after_failure(view, "no route to host")
    assert move.to is LaunchState.FAILED
    assert move.failure == "it may still run there, since it could not be ended: no route to host"


def test_pending_for_a_week_is_given_up_and_every_state_has_a_way_out() -> None:
    move = progress.before_call(VIEW, NOW + timedelta(seconds=progress.PENDING_SECONDS))
    assert move is not None
    assert (move.to, move.failure) == (LaunchState.TERMINATING, "it has waited for 7 days")
    assert {state for state, ways in LAUNCH_TRANSITIONS.items() if not ways} == set(OVER_LAUNCH_STATES)


def test_a_provider_that_fails_is_asked_ever_more_seldom() -> None:
    waits = [progress.seconds_to_next_look(LaunchState.PENDING, failures) for failures in range(9)]
    assert waits == sorted(waits)
    assert waits[-1] == progress.LONGEST_WAIT_SECONDS


def test_a_node_that_could_not_join_while_the_coordinator_was_away_is_not_given_up() -> None:
    running = replace(VIEW, state=LaunchState.RUNNING)
    now = NOW + timedelta(seconds=progress.JOIN_SECONDS)
    late = progress.before_call(running, now)
    assert late is not None
    assert late.failure == "its agent was started 300 s ago and has not joined"
    assert progress.before_call(replace(running, up_since=now - timedelta(seconds=1)), now) is None
