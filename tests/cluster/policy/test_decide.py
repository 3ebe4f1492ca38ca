"""Every rule of a job's life cycle, as a table: what is known -> what happens next."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.decide import PAUSE_SECONDS, START_SECONDS, STOP_SECONDS, decide
from paceline.cluster.policy.decisions import Restart, Stop, Transition
from paceline.cluster.policy.views import DRAIN_SECONDS, JobView, PolicyStop, RankView
from paceline.cluster.states import JOB_TRANSITIONS, TERMINAL_JOB_STATES, EndReason, Intent, JobState, RankState
from paceline.training.link import FailureReport

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)


def report(rank: int, kind: Any = "exception", time: float = 100.0) -> FailureReport:
    return FailureReport(kind=kind, rank=rank, message=f"rank {rank} broke", time=time)


def rank(number: int = 0, state: RankState = RankState.RUNNING, **known: Any) -> RankView:
    return RankView(rank=number, state=state, updated_at=known.pop("updated_at", NOW), **known)


def completed(number: int) -> RankView:
    return rank(number, RankState.EXITED, outcome="completed", drained=True)


def paused(number: int) -> RankView:
    return rank(number, RankState.EXITED, outcome="paused", drained=True)


def crashed(number: int, **known: Any) -> RankView:
    failure = known.pop("failure", None) or report(number)
    return rank(number, RankState.EXITED, outcome="failed", failure=failure, drained=known.pop("drained", True), **known)


def job(state: JobState, *ranks: RankView, **known: Any) -> JobView:
    view = JobView(
        state=state,
        desired=Intent.RUN,
        end_reason=None,
        state_since=NOW,
        generation=1,
        generation_since=NOW,
        generation_ended_at=None,
        restarts=0,
        max_restarts=3,
        ranks=ranks,
    )
    return replace(view, **known)


def stopping(reason: EndReason, *ranks: RankView, **known: Any) -> JobView:
    ended = None if reason is EndReason.PAUSED else NOW
    return job(JobState.STOPPING, *ranks, **{"end_reason": reason, "generation_ended_at": ended, **known})


RUNNING, STARTING, ASSIGNED, LOST = rank(0), rank(1, RankState.STARTING), rank(1, RankState.ASSIGNED), rank(1, RankState.LOST)
RUNNING_1 = rank(1)
LATE_START = {"generation_since": NOW - timedelta(seconds=START_SECONDS)}
CANCEL: dict[str, Any] = {"desired": Intent.CANCEL}
PAUSE: dict[str, Any] = {"desired": Intent.PAUSE}
ENDED = {"generation_ended_at": NOW}

CASES: dict[str, tuple[JobView, tuple[JobState, EndReason | None] | None]] = {
    "queued waits": (job(JobState.QUEUED), None),
    "queued, cancelled": (job(JobState.QUEUED, **CANCEL), (JobState.CANCELLED, EndReason.CANCELLED)),
    "queued, paused": (job(JobState.QUEUED, **PAUSE), (JobState.PAUSED, EndReason.PAUSED)),
    "starting waits for every rank": (job(JobState.STARTING, RUNNING, STARTING), None),
    "starting waits for assigned ranks": (job(JobState.STARTING, RUNNING, ASSIGNED), None),
    "started": (job(JobState.STARTING, RUNNING, RUNNING_1), (JobState.RUNNING, None)),
    "starting crashed": (job(JobState.STARTING, RUNNING, crashed(1)), (JobState.RECOVERING, EndReason.RANK_CRASHED)),
    "starting, no restart left": (
        job(JobState.STARTING, RUNNING, crashed(1), restarts=3),
        (JobState.STOPPING, EndReason.RANK_CRASHED),
    ),
    "its user's policy stops it": (
        job(
            JobState.RUNNING, RUNNING, RUNNING_1, is_script=True, stop=PolicyStop(EndReason.LOSS_NOT_FINITE, "the loss of step 7 is NaN", 7)
        ),
        (JobState.STOPPING, EndReason.LOSS_NOT_FINITE),
    ),
    "its user's policy stops it, whatever its ranks make of NaN": (
        job(JobState.RUNNING, RUNNING, crashed(1), is_script=True, stop=PolicyStop(EndReason.LOSS_SPIKE, "a spike", 7)),
        (JobState.STOPPING, EndReason.LOSS_SPIKE),
    ),
    "stopped for its loss": (
        stopping(EndReason.LOSS_NOT_FINITE, rank(0, RankState.EXITED, outcome="paused", drained=True)),
        (JobState.FAILED, EndReason.LOSS_NOT_FINITE),
    ),
    "a loss that its trainer stops at": (
        job(JobState.RUNNING, crashed(0, failure=report(0, "loss_not_finite")), RUNNING_1),
        (JobState.STOPPING, EndReason.LOSS_NOT_FINITE),
    ),
    "a loss that its trainer goes back from": (
        job(JobState.RUNNING, crashed(0, failure=report(0, "rolled_back")), RUNNING_1),
        (JobState.RECOVERING, EndReason.ROLLED_BACK),
    ),
    "a loss that its trainer goes back from, too often": (
        job(JobState.RUNNING, crashed(0, failure=report(0, "rolled_back")), RUNNING_1, restarts=3),
        (JobState.STOPPING, EndReason.ROLLED_BACK),
    ),
    "starting overdue": (job(JobState.STARTING, RUNNING, STARTING, **LATE_START), (JobState.RECOVERING, EndReason.START_TIMEOUT)),
    "starting overdue, no restart left": (
        job(JobState.STARTING, STARTING, restarts=3, **LATE_START),
        (JobState.STOPPING, EndReason.START_TIMEOUT),
    ),
    "starting, cancelled": (job(JobState.STARTING, STARTING, **CANCEL), (JobState.STOPPING, EndReason.CANCELLED)),
    "starting, paused": (job(JobState.STARTING, STARTING, **PAUSE), (JobState.STOPPING, EndReason.PAUSED)),
    "completed before running was seen": (
        job(JobState.STARTING, completed(0), completed(1)),
        (JobState.STOPPING, EndReason.COMPLETED),
    ),
    "starting, all joined, then paused": (job(JobState.STARTING, RUNNING, RUNNING_1, **PAUSE), (JobState.RUNNING, None)),
    "running goes on": (job(JobState.RUNNING, RUNNING, RUNNING_1), None),
    "running waits for the last rank to complete": (job(JobState.RUNNING, RUNNING, completed(1)), None),
    "completed": (job(JobState.RUNNING, completed(0), completed(1)), (JobState.STOPPING, EndReason.COMPLETED)),
    "crashed": (job(JobState.RUNNING, RUNNING, crashed(1)), (JobState.RECOVERING, EndReason.RANK_CRASHED)),
    "crashed without a word": (
        job(JobState.RUNNING, RUNNING, rank(1, RankState.EXITED)),
        (JobState.RECOVERING, EndReason.RANK_CRASHED),
    ),
    "crashed, no restart left": (job(JobState.RUNNING, RUNNING, crashed(1), restarts=3), (JobState.STOPPING, EndReason.RANK_CRASHED)),
    "out of memory, no restart left": (
        job(JobState.RUNNING, crashed(0, failure=report(0, "peer_lost")), crashed(1, failure=report(1, "out_of_memory")), restarts=3),
        (JobState.STOPPING, EndReason.OUT_OF_MEMORY),
    ),
    "invalid input is never retried": (
        job(JobState.RUNNING, RUNNING, crashed(1, failure=report(1, "invalid_input"))),
        (JobState.STOPPING, EndReason.INVALID_INPUT),
    ),
    "no checkpoint verifies is never retried": (
        job(JobState.STARTING, STARTING, crashed(1, failure=report(1, "checkpoint_failed"))),
        (JobState.STOPPING, EndReason.CHECKPOINT_FAILED),
    ),
    "node lost": (job(JobState.RUNNING, RUNNING, LOST), (JobState.RECOVERING, EndReason.NODE_LOST)),
    "node lost, its neighbour only noticed": (
        job(JobState.RUNNING, crashed(0, failure=report(0, "peer_lost")), LOST),
        (JobState.RECOVERING, EndReason.NODE_LOST),
    ),
    "running, paused": (job(JobState.RUNNING, RUNNING, RUNNING_1, **PAUSE), (JobState.STOPPING, EndReason.PAUSED)),
    "running, cancelled": (job(JobState.RUNNING, RUNNING, RUNNING_1, **CANCEL), (JobState.STOPPING, EndReason.CANCELLED)),
    "a crash comes before a pause": (job(JobState.RUNNING, RUNNING, crashed(1), **PAUSE), (JobState.RECOVERING, EndReason.RANK_CRASHED)),
    "completing comes before a pause": (job(JobState.RUNNING, completed(0), **PAUSE), (JobState.STOPPING, EndReason.COMPLETED)),
    "a cancel comes before a crash": (job(JobState.RUNNING, RUNNING, crashed(1), **CANCEL), (JobState.STOPPING, EndReason.CANCELLED)),
    "ranks saved and left though resumed meanwhile": (
        job(JobState.RUNNING, paused(0), paused(1)),
        (JobState.STOPPING, EndReason.PAUSED),
    ),
    "recovering waits for the old ranks": (job(JobState.RECOVERING, RUNNING, crashed(1), **ENDED), None),
    "recovering waits for slots": (job(JobState.RECOVERING, crashed(0), crashed(1), **ENDED), None),
    "recovering, old ranks will not die": (
        job(JobState.RECOVERING, RUNNING, crashed(1), generation_ended_at=NOW - timedelta(seconds=STOP_SECONDS)),
        (JobState.STOPPING, EndReason.STOP_TIMEOUT),
    ),
    "recovering, the culprit turns out hopeless": (
        job(
            JobState.RECOVERING,
            crashed(0, failure=report(0, "peer_lost", 1.0)),
            crashed(1, failure=report(1, "invalid_input", 2.0)),
            end_reason=EndReason.RANK_CRASHED,
            **ENDED,
        ),
        (JobState.STOPPING, EndReason.INVALID_INPUT),
    ),
    "recovering, new generation joining": (job(JobState.RECOVERING, RUNNING, STARTING), None),
    "recovered": (job(JobState.RECOVERING, RUNNING, RUNNING_1), (JobState.RUNNING, None)),
    "crashed again while recovering": (
        job(JobState.RECOVERING, RUNNING, crashed(1), restarts=1),
        (JobState.RECOVERING, EndReason.RANK_CRASHED),
    ),
    "crashed again, no restart left": (
        job(JobState.RECOVERING, RUNNING, crashed(1), restarts=3),
        (JobState.STOPPING, EndReason.RANK_CRASHED),
    ),
    "recovering, cancelled": (job(JobState.RECOVERING, RUNNING, crashed(1), **ENDED, **CANCEL), (JobState.STOPPING, EndReason.CANCELLED)),
    "recovering, paused": (job(JobState.RECOVERING, RUNNING, crashed(1), **ENDED, **PAUSE), (JobState.STOPPING, EndReason.PAUSED)),
    "stopping waits for every rank": (stopping(EndReason.CANCELLED, RUNNING, crashed(1)), None),
    "stopping waits for what a rank left behind": (stopping(EndReason.CANCELLED, crashed(0, drained=False)), None),
    "... but not for ever": (
        stopping(EndReason.CANCELLED, crashed(0, drained=False, updated_at=NOW - timedelta(seconds=DRAIN_SECONDS))),
        (JobState.CANCELLED, EndReason.CANCELLED),
    ),
    "stopped: cancelled": (stopping(EndReason.CANCELLED, crashed(0), LOST), (JobState.CANCELLED, EndReason.CANCELLED)),
    "stopped: completed": (stopping(EndReason.COMPLETED, completed(0)), (JobState.COMPLETED, EndReason.COMPLETED)),
    "stopped: preempted": (stopping(EndReason.PREEMPTED, paused(0)), (JobState.QUEUED, None)),
    "stopped: failed": (stopping(EndReason.OUT_OF_MEMORY, crashed(0)), (JobState.FAILED, EndReason.OUT_OF_MEMORY)),
    "stopped: the true cause came in last": (
        stopping(EndReason.RANK_CRASHED, crashed(0, failure=report(0, "peer_lost")), crashed(1, failure=report(1, "out_of_memory"))),
        (JobState.FAILED, EndReason.OUT_OF_MEMORY),
    ),
    "stopped: our own SIGTERM is not the cause": (
        stopping(EndReason.NODE_LOST, crashed(0, failure=report(0, "signal", NOW.timestamp() + 1)), LOST),
        (JobState.FAILED, EndReason.NODE_LOST),
    ),
    "stopping overdue: cancelled": (
        stopping(EndReason.CANCELLED, RUNNING, state_since=NOW - timedelta(seconds=STOP_SECONDS)),
        (JobState.CANCELLED, EndReason.CANCELLED),
    ),
    "stopping overdue: failed": (
        stopping(EndReason.STOP_TIMEOUT, RUNNING, state_since=NOW - timedelta(seconds=STOP_SECONDS)),
        (JobState.FAILED, EndReason.STOP_TIMEOUT),
    ),
    "pausing waits for the save": (stopping(EndReason.PAUSED, RUNNING, paused(1), **PAUSE), None),
    "paused": (stopping(EndReason.PAUSED, paused(0), paused(1), **PAUSE), (JobState.PAUSED, EndReason.PAUSED)),
    "completed instead of paused": (
        stopping(EndReason.PAUSED, completed(0), completed(1), **PAUSE),
        (JobState.COMPLETED, EndReason.COMPLETED),
    ),
    "crashed while saving": (stopping(EndReason.PAUSED, RUNNING, crashed(1), **PAUSE), (JobState.STOPPING, EndReason.PAUSED)),
    "crashed while saving, no restart left": (
        stopping(EndReason.PAUSED, RUNNING, crashed(1), restarts=3, **PAUSE),
        (JobState.STOPPING, EndReason.RANK_CRASHED),
    ),
    "paused by a crash": (stopping(EndReason.PAUSED, crashed(0), crashed(1), **ENDED, **PAUSE), (JobState.PAUSED, EndReason.PAUSED)),
    "paused before some rank was ever started": (
        stopping(EndReason.PAUSED, crashed(0), rank(1, RankState.EXITED, started=False, drained=True), **ENDED, **PAUSE),
        (JobState.PAUSED, EndReason.PAUSED),
    ),
    "save overdue": (
        stopping(EndReason.PAUSED, RUNNING, state_since=NOW - timedelta(seconds=PAUSE_SECONDS), **PAUSE),
        (JobState.STOPPING, EndReason.PAUSED),
    ),
    "save overdue, no restart left": (
        stopping(EndReason.PAUSED, RUNNING, state_since=NOW - timedelta(seconds=PAUSE_SECONDS), restarts=3, **PAUSE),
        (JobState.STOPPING, EndReason.STOP_TIMEOUT),
    ),
    "paused by its own spec": (job(JobState.RUNNING, paused(0), paused(1), own_pause=30), (JobState.STOPPING, EndReason.PAUSED)),
    "cancelled when its spec pauses it": (
        job(JobState.RUNNING, paused(0), own_pause=30, **CANCEL),
        (JobState.STOPPING, EndReason.CANCELLED),
    ),
    "cancelled while saving": (stopping(EndReason.PAUSED, RUNNING, **CANCEL), (JobState.STOPPING, EndReason.CANCELLED)),
    "paused stays": (job(JobState.PAUSED, **PAUSE), None),
    "resumed": (job(JobState.PAUSED), (JobState.QUEUED, None)),
    "paused, cancelled": (job(JobState.PAUSED, **CANCEL), (JobState.CANCELLED, EndReason.CANCELLED)),
}


@pytest.mark.parametrize("case", CASES)
def test_the_rule(case: str) -> None:
    view, expected = CASES[case]
    decision = decide(view, NOW)
    assert (decision and (decision.to, decision.reason)) == expected
    assert decision is None or decision.why


@pytest.mark.parametrize("state", sorted(TERMINAL_JOB_STATES))
@pytest.mark.parametrize("desired", list(Intent))
def test_nothing_moves_a_finished_job(state: JobState, desired: Intent) -> None:
    assert decide(job(state, crashed(0), desired=desired), NOW) is None


@pytest.mark.parametrize("case", CASES)
def test_every_decision_is_a_legal_transition(case: str) -> None:
    view, _ = CASES[case]
    decision = decide(view, NOW)
    assert decision is None or decision.to is view.state or decision.to in JOB_TRANSITIONS[view.state]


def test_a_pause_that_its_spec_asks_for_waits_for_its_user() -> None:
    own, asked = (decide(job(JobState.RUNNING, paused(0), paused(1), own_pause=step), NOW) for step in (30, None))
    assert isinstance(own, Stop)
    assert isinstance(asked, Stop)
    assert (own.waits_for_user, asked.waits_for_user) == (True, False), "a user's pause has an intent already, or was taken back"
    assert own.why == "all 2 ranks have saved and exited after step 30, as training.pause_at_steps says"


def test_a_crash_counts_once_until_the_new_generation_crashes() -> None:
    first = decide(job(JobState.RUNNING, crashed(0)), NOW)
    assert isinstance(first, Restart)
    assert first.counts_as_restart
    assert first.ends_generation
    assert decide(job(JobState.RECOVERING, crashed(0), restarts=1, **ENDED), NOW) is None
    again = decide(job(JobState.RECOVERING, crashed(0), restarts=1), NOW)
    assert isinstance(again, Restart)
    assert again.counts_as_restart


def test_one_rank_is_spoken_of_as_one() -> None:
    one, two = (decide(job(JobState.RUNNING, *map(completed, range(ranks))), NOW) for ranks in (1, 2))
    assert (getattr(one, "why", None), getattr(two, "why", None)) == ("its only rank has completed", "all 2 ranks have completed")


def test_why_is_one_line_whatever_a_rank_has_said() -> None:
    said = FailureReport(kind="exception", rank=0, message="shapes differ:\n  weight (2, 3)", exception="RuntimeError", time=100.0)
    decision = decide(job(JobState.RUNNING, crashed(0, failure=said)), NOW)
    assert decision is not None
    assert decision.why.startswith("rank 0: shapes differ: …;")


ORDERED = FailureReport(kind="signal", rank=0, message="killed by SIGTERM", signal="SIGTERM", ordered=True, time=100.0)


def test_ranks_that_ended_with_their_agent_use_up_no_restart() -> None:
    view = job(JobState.RUNNING, crashed(0, failure=ORDERED), crashed(1, failure=report(1, "peer_lost")), max_restarts=0)
    decision = decide(view, NOW)
    assert isinstance(decision, Restart)
    assert (decision.to, decision.reason, decision.counts_as_restart) == (JobState.RECOVERING, EndReason.NODE_LOST, False)
    assert decision.ends_generation
    assert decision.why.startswith("the agent of rank 0 was stopped, and the rank with it;")
    own = decide(replace(view, ranks=(view.ranks[0], crashed(1))), NOW)
    assert isinstance(own, Stop)


def test_a_pause_leaves_the_ranks_up_and_a_cancel_does_not() -> None:
    assert not Stop(EndReason.PAUSED, "").ends_generation
    assert Stop(EndReason.CANCELLED, "").ends_generation


def test_a_pause_before_every_rank_has_joined_stops_them_and_costs_no_restart() -> None:
    decision = decide(job(JobState.STARTING, RUNNING, ASSIGNED, **PAUSE), NOW)
    assert isinstance(decision, Stop)
    assert decision.ends_generation
    assert not decision.counts_as_restart


RANKS = st.builds(
    RankView,
    rank=st.integers(0, 3),
    state=st.sampled_from(RankState),
    updated_at=st.sampled_from([NOW, NOW - timedelta(hours=1)]),
    outcome=st.sampled_from([None, "completed", "paused", "failed"]),
    failure=st.none() | st.builds(report, st.integers(0, 3), st.sampled_from(["exception", "peer_lost", "invalid_input", "signal"])),
    drained=st.booleans(),
)
VIEWS = st.builds(
    JobView,
    state=st.sampled_from(JobState),
    desired=st.sampled_from(Intent),
    end_reason=st.none() | st.sampled_from(EndReason),
    state_since=st.sampled_from([NOW, NOW - timedelta(hours=1)]),
    generation=st.just(1),
    generation_since=st.sampled_from([NOW, NOW - timedelta(hours=1)]),
    generation_ended_at=st.none() | st.just(NOW),
    restarts=st.integers(0, 3),
    max_restarts=st.just(3),
    ranks=st.lists(RANKS, max_size=3).map(tuple),
)


@given(VIEWS)
def test_whatever_is_known_the_decision_is_legal_and_says_why(view: JobView) -> None:
    decision = decide(view, NOW)
    if decision is None:
        return
    assert decision.why
    assert decision.to is view.state or decision.to in JOB_TRANSITIONS[view.state]
    assert not decision.counts_as_restart or view.restarts < view.max_restarts


@given(VIEWS)
def test_stopping_always_ends(view: JobView) -> None:
    late = NOW + timedelta(seconds=max(PAUSE_SECONDS, STOP_SECONDS))
    for _ in range(4):
        if view.state is not JobState.STOPPING:
            return
        decision = decide(view, late)
        assert isinstance(decision, Stop | Transition), "an overdue stop must go on"
        ended = view.generation_ended_at or (late if decision.ends_generation else None)
        restarts = view.restarts + decision.counts_as_restart
        view = replace(view, state=decision.to, end_reason=decision.reason, generation_ended_at=ended, restarts=restarts, state_since=late)
        late += timedelta(seconds=max(PAUSE_SECONDS, STOP_SECONDS))
    assert view.state is not JobState.STOPPING


SCRIPT = {"is_script": True, "saves": False, "grace_seconds": 90.0}
