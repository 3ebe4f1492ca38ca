"""When a job may be given slots, and how long one waits with its restart."""

from __future__ import annotations

from datetime import timedelta

import pytest

from paceline.cluster.policy.decide import decide, wants_slots
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import JobState, RankState
from tests.cluster.policy.test_decide import ENDED, LOST, NOW, PAUSE, RUNNING, STARTING, crashed, job, rank


@pytest.mark.parametrize(
    ("view", "wanted"),
    [
        (job(JobState.QUEUED), True),
        (job(JobState.QUEUED, **PAUSE), False),
        (job(JobState.RECOVERING, crashed(0), LOST, **ENDED), True),
        (job(JobState.RECOVERING, crashed(0, drained=False), **ENDED), False),
        (job(JobState.RECOVERING, RUNNING, **ENDED), False),
        (job(JobState.RECOVERING, STARTING), False),
        (job(JobState.RUNNING, RUNNING), False),
    ],
)
def test_who_wants_slots(view: JobView, wanted: bool) -> None:
    assert wants_slots(view, NOW) is wanted


@pytest.mark.parametrize(("waited", "reachable", "wanted"), [(12, True, False), (31, True, True), (12, False, True)])
def test_a_restart_waits_for_a_node_that_is_behind_only_so_long(waited: int, reachable: bool, wanted: bool) -> None:
    ended = NOW - timedelta(seconds=waited)
    dead = rank(0, RankState.EXITED, outcome="failed", updated_at=ended, behind=True, reachable=reachable)
    assert wants_slots(job(JobState.RECOVERING, dead, state_since=ended, generation_ended_at=ended), NOW) is wanted


def test_a_job_may_wait_for_slots_while_recovering() -> None:
    week = {"state_since": NOW - timedelta(days=7), "generation_ended_at": NOW - timedelta(days=7)}
    assert decide(job(JobState.RECOVERING, crashed(0), **week), NOW) is None


@pytest.mark.parametrize(("restarts", "seconds"), [(1, 1), (2, 2), (3, 4), (50, 60)])
def test_a_job_that_its_node_could_not_start_waits_longer_each_time(restarts: int, seconds: int) -> None:
    """All its restarts were used up within a second."""
    refused = crashed(0, could_not_begin=True)
    for waited, wanted in ((seconds - 1, False), (seconds, True)):
        ended = NOW - timedelta(seconds=waited)
        view = job(JobState.RECOVERING, refused, crashed(1), generation_ended_at=ended, restarts=restarts)
        assert wants_slots(view, NOW) is wanted
        assert decide(view, NOW) is None


def test_a_job_that_failed_by_itself_starts_again_at_once() -> None:
    assert wants_slots(job(JobState.RECOVERING, crashed(0), restarts=2, **ENDED), NOW)
