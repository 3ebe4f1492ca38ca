"""A job that has held its slots for as long as it may: what is known of it -> how it ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from paceline.cluster.policy.decide import PAUSE_SECONDS, decide
from paceline.cluster.policy.decisions import Regroup, Stop
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import EndReason, JobState, RankState
from tests.cluster.policy.test_decide import ASSIGNED, CANCEL, NOW, PAUSE, RUNNING, SCRIPT, completed, crashed, job, paused, rank, report
from tests.cluster.policy.test_decide_close_up import gang, killed

HOUR = timedelta(hours=1)


def limited(state: JobState, *ranks: RankView, ran: float = 0.0, **known: Any) -> JobView:
    """It has held slots for an hour in this generation, and for `ran` seconds before; its limit is two hours."""
    return job(state, *ranks, **{"time_limit": 7200.0, "ran_before": ran, "generation_since": NOW - HOUR, **known})


def over(state: JobState, *ranks: RankView, **known: Any) -> JobView:
    return limited(state, *ranks, **{"ran": 3600.0, **known})


def saving(*ranks: RankView, **known: Any) -> JobView:
    return over(JobState.STOPPING, *ranks, end_reason=EndReason.TIME_LIMIT, **known)


@pytest.mark.parametrize(
    "view",
    [
        limited(JobState.RUNNING, RUNNING, ran=3599.0),
        over(JobState.RUNNING, RUNNING, time_limit=None),
        limited(JobState.RECOVERING, crashed(0), ran=7199.0, generation_ended_at=NOW),  # this generation has been added up already
        over(JobState.PAUSED, **PAUSE),
    ],
    ids=["not yet", "no limit", "waits for slots", "paused"],
)
def test_time_that_is_not_over(view: JobView) -> None:
    assert decide(view, NOW) is None


def test_a_job_that_saves_keeps_its_ranks_up_for_that() -> None:
    decision = decide(over(JobState.RUNNING, RUNNING), NOW)
    assert isinstance(decision, Stop)
    assert (decision.to, decision.reason, decision.ends_generation) == (JobState.STOPPING, EndReason.TIME_LIMIT, False)
    assert decision.why == "it has run for 2h, its time_limit: its ranks save and exit"


def test_a_script_gets_sigterm_and_its_grace() -> None:
    decision = decide(over(JobState.RUNNING, RUNNING, **SCRIPT), NOW)
    assert isinstance(decision, Stop)
    assert (decision.reason, decision.ends_generation) == (EndReason.TIME_LIMIT, True)
    assert decision.why == "it has run for 2h, its time_limit: its ranks get SIGTERM, and 1m30s to save and exit"


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (over(JobState.RUNNING, completed(0)), EndReason.COMPLETED),
        (over(JobState.RUNNING, RUNNING, **CANCEL), EndReason.CANCELLED),
        (over(JobState.RUNNING, RUNNING, **PAUSE), EndReason.PAUSED),
        (over(JobState.RUNNING, crashed(0), restarts=3), EndReason.RANK_CRASHED),
        (over(JobState.STARTING, RUNNING, ASSIGNED), EndReason.TIME_LIMIT),
        (over(JobState.RECOVERING, crashed(0), generation_ended_at=NOW, ran=7200.0), EndReason.TIME_LIMIT),
    ],
)
def test_which_end_comes_first(view: JobView, reason: EndReason) -> None:
    decision = decide(view, NOW)
    assert decision is not None
    assert (decision.to, decision.reason) == (JobState.STOPPING, reason)


def test_survivors_that_are_still_closing_up_join_before_they_save() -> None:
    joining = (rank(0, RankState.STARTING, process_kept=True), rank(1, process_kept=True))
    assert decide(over(JobState.RECOVERING, *joining, ran=7200.0, generation_since=NOW), NOW) is None


def test_a_job_that_never_comes_to_change_its_members_ends_at_its_limit_all_the_same() -> None:
    """It trained on for as long as its save failed."""
    members = (rank(0, ASSIGNED.state, process_kept=True), rank(1, ASSIGNED.state, process_kept=True, newcomer=True))
    assert decide(over(JobState.RESIZING, *members), NOW) is None, "it may save at the step at which they change"
    decision = decide(over(JobState.RESIZING, *members, ran=3600.0 + PAUSE_SECONDS), NOW)
    assert isinstance(decision, Stop)
    assert (decision.reason, decision.ends_generation) == (EndReason.TIME_LIMIT, True)
    assert decision.why == "it has run for 2h, its time_limit, and did not change its members within 120 s of it"


def test_it_ends_failed_with_its_limit_as_the_reason_once_it_has_saved() -> None:
    decision = decide(saving(paused(0), paused(1)), NOW)
    assert decision is not None
    assert (decision.to, decision.reason) == (JobState.FAILED, EndReason.TIME_LIMIT)
    assert decide(saving(paused(0), rank(1)), NOW) is None


def test_one_that_completes_while_it_saves_has_completed() -> None:
    decision = decide(saving(completed(0)), NOW)
    assert decision is not None
    assert decision.to is JobState.COMPLETED


@pytest.mark.parametrize(
    "view",
    [saving(crashed(0), restarts=3), saving(RUNNING, state_since=NOW - timedelta(seconds=PAUSE_SECONDS))],
    ids=["a crash", "too slow"],
)
def test_what_goes_wrong_while_it_saves_changes_nothing_but_the_checkpoint(view: JobView) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Stop)
    assert (decision.to, decision.reason, decision.counts_as_restart) == (JobState.STOPPING, EndReason.TIME_LIMIT, False)
    assert decision.ends_generation
    assert decision.why.endswith("its newest checkpoint is an older one")
    stopped = replace(view, ranks=(crashed(0, failure=report(0)),), generation_ended_at=NOW)
    end = decide(stopped, NOW)
    assert end is not None
    assert (end.to, end.reason) == (JobState.FAILED, EndReason.TIME_LIMIT)


def test_survivors_of_a_rank_that_dies_while_all_save_save_in_its_place() -> None:
    view = gang(rank(0), killed(1), state=JobState.STOPPING, end_reason=EndReason.TIME_LIMIT)
    decision = decide(view, NOW)
    assert isinstance(decision, Regroup)
    assert decision.members.survivors == (0,)
