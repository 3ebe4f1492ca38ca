"""Changing members while it runs, and ranks without a place: what is known of them -> what happens next."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.decide import LONG_CHANGE_SECONDS, PAUSE_SECONDS, START_SECONDS, STOP_SECONDS, decide
from paceline.cluster.policy.decisions import Regroup, Restart, Stop
from paceline.cluster.policy.recovery import ENTER_SECONDS
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import JOB_TRANSITIONS, EndReason, Intent, JobState, RankState
from paceline.training.schema.parallelism import Parallelism
from tests.cluster.policy.test_decide import CANCEL, NOW, PAUSE, RANKS, VIEWS, completed, crashed, job, paused, rank, report, stopping
from tests.cluster.policy.test_decide_close_up import broken, gang, killed

LONG_AGO = NOW - timedelta(seconds=ENTER_SECONDS)
VERY_LONG_AGO = NOW - timedelta(seconds=START_SECONDS + 1)
SPARE = rank(2, RankState.PARKED)
COLD_SPARE = rank(2, RankState.STARTING)


def newcomer(number: int, state: RankState = RankState.ASSIGNED, **known: Any) -> RankView:
    return rank(number, state, process_kept=True, newcomer=True, **known)


def stayer(number: int, state: RankState = RankState.ASSIGNED, **known: Any) -> RankView:
    return rank(number, state, process_kept=True, **known)


def dead(number: int, **known: Any) -> RankView:
    return replace(killed(number), process_kept=True, **known)


def resizing(*ranks: RankView, **known: Any) -> JobView:
    return gang(*ranks, state=JobState.RESIZING, **known)


THERE, LATE = stayer(0, RankState.STARTING, updated_at=LONG_AGO), newcomer(1, updated_at=LONG_AGO)


@pytest.mark.parametrize(
    "view",
    [
        resizing(stayer(0), newcomer(1), generation_since=VERY_LONG_AGO, state_since=VERY_LONG_AGO),  # a step takes as long as it takes
        resizing(stayer(0, RankState.STARTING), newcomer(1)),
        resizing(THERE, stayer(1, updated_at=LONG_AGO), newcomer(2, updated_at=LONG_AGO)),  # one is at work in the old generation still
        resizing(stayer(0), newcomer(1), **PAUSE),  # the pause comes once they have joined
        resizing(completed(0), stayer(1), newcomer(2)),
        resizing(completed(0), stayer(1), dead(2, newcomer=True)),  # the others come to the end without it
    ],
)
def test_it_waits_for_the_boundary(view: JobView) -> None:
    assert decide(view, NOW) is None


@pytest.mark.parametrize(
    ("view", "to", "reason"),
    [
        (resizing(stayer(0, RankState.RUNNING), newcomer(1, RankState.RUNNING)), JobState.RUNNING, None),
        (resizing(stayer(0), newcomer(1), **CANCEL), JobState.STOPPING, EndReason.CANCELLED),
        (resizing(completed(0), completed(1), newcomer(2)), JobState.STOPPING, EndReason.COMPLETED),  # the run was over before the change
    ],
)
def test_how_a_change_ends(view: JobView, to: JobState, reason: EndReason | None) -> None:
    decision = decide(view, NOW)
    assert decision is not None
    assert (decision.to, decision.reason) == (to, reason)


@pytest.mark.parametrize(
    ("view", "survivors"),
    [
        (resizing(stayer(0), dead(1), newcomer(2)), (0, 2)),
        (resizing(stayer(0), dead(1, newcomer=True)), (0,)),
        (resizing(stayer(0), replace(crashed(1), newcomer=True)), (0,)),  # its exception is no verdict on the others
        (resizing(stayer(0), replace(crashed(1, failure=report(1, "invalid_input")), newcomer=True)), (0,)),
        (resizing(THERE, LATE), (0,)),
        (resizing(THERE, newcomer(1, RankState.STARTING, updated_at=LONG_AGO)), (0,)),
        (resizing(broken(0, updated_at=LONG_AGO), newcomer(1, RankState.STARTING)), (0, 1)),
        (gang(stayer(0, RankState.STARTING, updated_at=LONG_AGO), LATE, state=JobState.RECOVERING), (0,)),  # a spare that never came
    ],
)
def test_who_goes_on_when_a_change_breaks(view: JobView, survivors: tuple[int, ...]) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Regroup)
    assert (decision.to, decision.members.survivors, decision.at_boundary) == (JobState.RECOVERING, survivors, False)
    assert not decision.counts_as_restart


ON_ITS_WAY = stayer(1, RankState.STARTING, updated_at=LONG_AGO)


@pytest.mark.parametrize(
    ("ranks", "before", "whole"),
    [
        ((stayer(0), stayer(1), dead(2, newcomer=True)), 2, True),
        ((THERE, ON_ITS_WAY, newcomer(2, updated_at=LONG_AGO)), 2, True),
        ((stayer(0), dead(1, newcomer=True)), 1, True),
        ((stayer(0), stayer(1), dead(2, newcomer=True)), 3, False),  # one was to leave at the boundary, with its part
        ((stayer(0), dead(1), newcomer(2)), 2, False),
        ((stayer(0, RankState.RUNNING), stayer(1), dead(2, newcomer=True)), 2, False),  # they have divided the state among three
    ],
)
def test_a_newcomer_that_dies_takes_no_part_of_the_state_along(ranks: tuple[RankView, ...], before: int, whole: bool) -> None:
    """It cost one of the restarts, and where none was left it ended a job that was well."""
    decision = decide(resizing(*ranks, size_before=before, plan=Parallelism(strategy="fsdp"), max_restarts=3), NOW)
    assert isinstance(decision, Regroup)
    assert (decision.members.whole, decision.counts_as_restart) == (whole, not whole)


@pytest.mark.parametrize(
    ("ranks", "before", "parking"),
    [
        ((stayer(0), stayer(1), dead(2, newcomer=True), newcomer(3)), 2, (3,)),
        ((stayer(0), dead(1, newcomer=True), newcomer(2), newcomer(3)), 1, (2, 3)),
    ],
)
def test_members_with_all_of_the_state_go_on_though_one_of_several_newcomers_dies(
    ranks: tuple[RankView, ...], before: int, parking: tuple[int, ...]
) -> None:
    """They were to make a world with the newcomer that lives, for which no part fits: all went back, or the job failed."""
    decision = decide(resizing(*ranks, size_before=before, plan=Parallelism(strategy="fsdp"), max_restarts=0), NOW)
    assert isinstance(decision, Regroup)
    assert (decision.members.survivors, decision.members.parking) == (tuple(range(before)), parking)
    assert (decision.members.whole, decision.counts_as_restart) == (True, False)


def test_a_spare_does_not_take_the_place_of_a_newcomer_where_all_would_go_back_for_it() -> None:
    fsdp = Parallelism(strategy="fsdp")
    ranks = (stayer(0), stayer(1), dead(2, newcomer=True))
    decision = decide(resizing(*ranks, size_before=2, plan=fsdp, target=3, parked=(rank(3, RankState.PARKED),), max_restarts=0), NOW)
    assert isinstance(decision, Regroup)
    assert (decision.members.survivors, decision.members.joining, decision.members.whole) == ((0, 1), (), True)


FSDP = Parallelism(strategy="fsdp")
VERY_LONG_PAUSED = PAUSE | {"state_since": NOW - timedelta(seconds=LONG_CHANGE_SECONDS)}
LONG_PAUSED = PAUSE | {"state_since": NOW - timedelta(seconds=PAUSE_SECONDS)}


@pytest.mark.parametrize(
    ("ranks", "known", "survivors"),
    [
        ((stayer(0), stayer(1), newcomer(2)), {"plan": FSDP, "size_before": 2}, (0, 1)),
        ((stayer(0), stayer(1), newcomer(2)), {"plan": FSDP, "size_before": 2, "parked": (SPARE,)}, (0, 1)),
        ((stayer(0), newcomer(1, RankState.STARTING)), {"size_before": 2}, (0,)),
    ],
)
def test_a_pause_that_comes_while_members_cannot_change_is_obeyed_by_those_at_work(
    ranks: tuple[RankView, ...], known: dict[str, Any], survivors: tuple[int, ...]
) -> None:
    """A save that failed at that step, again and again, kept them "resizing" for ever."""
    assert decide(resizing(*ranks, **PAUSE | known), NOW) is None
    decision = decide(resizing(*ranks, **LONG_PAUSED | known), NOW)
    assert isinstance(decision, Regroup)
    assert (decision.members.survivors, decision.members.whole, decision.counts_as_restart) == (survivors, True, False)
    again = gang(*(stayer(rank, RankState.RUNNING) for rank in survivors), **PAUSE | known)
    paused_then = decide(again, NOW)
    assert paused_then is not None
    assert (paused_then.to, paused_then.reason) == (JobState.STOPPING, EndReason.PAUSED)


def test_a_pause_that_comes_while_a_member_cannot_leave_costs_the_steps_since_the_last_checkpoint() -> None:
    """One of three is to leave: the other two do not hold its part."""
    shrinking = resizing(stayer(0), stayer(1), plan=FSDP, size_before=3, max_restarts=3, **VERY_LONG_PAUSED)
    decision = decide(shrinking, NOW)
    assert isinstance(decision, Stop)
    assert (decision.reason, decision.ends_generation, decision.counts_as_restart) == (EndReason.PAUSED, True, True)
    without_restarts = decide(replace(shrinking, max_restarts=0), NOW)
    assert without_restarts == replace(decision, counts_as_restart=False), "a pause that its user asks for never fails a job that is well"
    assert without_restarts.ends_generation
    assert decide(replace(shrinking, ranks=(stayer(0), stayer(1), newcomer(2))), NOW) is None  # it may still come
    assert decide(replace(shrinking, ranks=(stayer(0, RankState.STARTING), stayer(1))), NOW) is None  # they are on their way


def test_a_pause_that_comes_during_a_slow_save_of_a_change_lets_it_finish() -> None:
    """The save was cut off at the click, and without a restart left the job failed, if the change had taken two minutes by then."""
    for left in (0, 3):
        shrinking = resizing(stayer(0), stayer(1), plan=FSDP, size_before=3, max_restarts=left, **LONG_PAUSED)
        assert decide(shrinking, NOW) is None
        assert decide(replace(shrinking, state_since=NOW - timedelta(seconds=LONG_CHANGE_SECONDS - 1)), NOW) is None


def test_newcomers_alone_have_nothing_to_go_on_from() -> None:
    decision = decide(resizing(dead(0), newcomer(1), max_restarts=3), NOW)
    assert isinstance(decision, Restart)
    assert decision.counts_as_restart


@pytest.mark.parametrize(
    ("view", "members"),
    [
        (gang(rank(0), killed(1), parked=(SPARE,), target=2), ((0,), (2,))),
        (gang(rank(0), killed(1), parked=(COLD_SPARE,), target=2), ((0,), ())),
        (gang(rank(0), killed(1), parked=(replace(SPARE, reachable=False),), target=2), ((0,), ())),
        (gang(rank(0), killed(1), parked=(replace(SPARE, leaving=True),), target=2), ((0,), ())),
        (gang(rank(0), killed(1), parked=(SPARE, rank(3, RankState.PARKED)), target=2), ((0,), (2,))),
        (gang(rank(0), killed(1), parked=(SPARE,), target=1), ((0,), ())),  # resized meanwhile
        (gang(rank(0), killed(1), parked=(SPARE,), target=2, least=2), ((0,), (2,))),
    ],
)
def test_spares_take_the_place_of_the_dead(view: JobView, members: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    decision = decide(view, NOW)
    assert isinstance(decision, Regroup)
    assert (decision.members.survivors, decision.members.joining) == members
    assert ("spare" in decision.why) == bool(decision.members.joining)


@pytest.mark.parametrize("spare", [SPARE, COLD_SPARE, killed(2), rank(2, RankState.LOST), broken(2)])
def test_ranks_without_a_place_are_no_part_of_what_the_job_does(spare: RankView) -> None:
    assert decide(gang(rank(0), rank(1), parked=(spare,)), NOW) is None
    started = decide(gang(rank(0), rank(1), parked=(spare,), state=JobState.STARTING), NOW)
    done = decide(gang(completed(0), completed(1), parked=(spare,)), NOW)
    assert (started and started.to, done and done.reason) == (JobState.RUNNING, EndReason.COMPLETED)


def test_a_job_has_stopped_when_its_parked_ranks_are_gone_too() -> None:
    saved = stopping(EndReason.PAUSED, paused(0), parked=(SPARE,), **PAUSE)
    assert decide(saved, NOW) is None
    gone = replace(SPARE, state=RankState.EXITED, outcome="released", drained=True)
    ended = decide(replace(saved, parked=(gone,)), NOW)
    assert ended is not None
    assert ended.to is JobState.PAUSED
    late = decide(replace(saved, state_since=NOW - timedelta(seconds=PAUSE_SECONDS)), NOW)
    assert late is not None
    assert (late.to, late.counts_as_restart) == (JobState.PAUSED, False)  # what was to be saved is saved


LEAVING = rank(1, leaving=True)


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (job(JobState.RUNNING, rank(0), LEAVING), EndReason.PREEMPTED),
        (job(JobState.RUNNING, rank(0), rank(1), target=3), EndReason.RESIZED),
        (job(JobState.RUNNING, rank(0), rank(1), target=2), None),
        (job(JobState.RUNNING, rank(0), LEAVING, saves=False), None),  # a script is waited for
        (gang(rank(0), LEAVING, target=3), None),  # a job that closes up changes while it runs
        (job(JobState.STARTING, rank(0, RankState.STARTING), LEAVING), None),
    ],
)
def test_who_makes_way_by_saving_and_going_back_to_the_queue(view: JobView, reason: EndReason | None) -> None:
    decision = decide(view, NOW)
    assert (decision and decision.reason) == reason
    assert decision is None or (isinstance(decision, Stop) and not decision.ends_generation)


@pytest.mark.parametrize("reason", [EndReason.PREEMPTED, EndReason.RESIZED])
def test_what_made_way_has_saved_and_is_queued(reason: EndReason) -> None:
    view = replace(stopping(EndReason.PAUSED, paused(0), paused(1)), end_reason=reason)
    decision = decide(view, NOW)
    assert decision is not None
    assert (decision.to, decision.reason) == (JobState.QUEUED, None)
    crash = decide(replace(view, ranks=(paused(0), crashed(1))), NOW)
    assert crash is not None
    assert (crash.to, crash.reason, crash.counts_as_restart) == (JobState.STOPPING, reason, True)


@given(VIEWS, st.lists(RANKS, max_size=2).map(tuple), st.booleans(), st.integers(1, 3) | st.none())
def test_whatever_is_parked_the_decision_is_legal(view: JobView, parked: tuple[RankView, ...], newcomers: bool, least: int | None) -> None:
    ranks = tuple(replace(each, rank=number, newcomer=newcomers and number > 0) for number, each in enumerate(view.ranks))
    parked = tuple(replace(each, rank=len(ranks) + number) for number, each in enumerate(parked))
    decision = decide(replace(view, ranks=ranks, parked=parked, min_ranks=least, target=2), NOW)
    if decision is None:
        return
    assert decision.to is view.state or decision.to in JOB_TRANSITIONS[view.state]
    if not isinstance(decision, Regroup):
        return
    members = decision.members
    assert members.survivors
    assert set(members.survivors) <= {each.rank for each in ranks}
    assert all(each.state is RankState.PARKED for each in parked if each.rank in members.joining)


@given(VIEWS, st.lists(RANKS, max_size=2).map(tuple))
def test_stopping_ends_whatever_is_parked(view: JobView, parked: tuple[RankView, ...]) -> None:
    late, limit = NOW, timedelta(seconds=max(PAUSE_SECONDS, STOP_SECONDS))
    view = replace(view, state=JobState.STOPPING, parked=parked, desired=Intent.RUN)
    for _ in range(5):
        late += limit
        decision = decide(view, late)
        assert decision is not None
        if not isinstance(decision, Stop):
            return
        ended = view.generation_ended_at or (late if decision.ends_generation else None)
        restarts = view.restarts + decision.counts_as_restart
        view = replace(view, end_reason=decision.reason, generation_ended_at=ended, restarts=restarts, state_since=late)
    raise AssertionError("it never stops")
