"""Which ranks a gang gains and gives up: examples for each reason, and properties over any gang."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.policy.decisions import ResizeGang
from paceline.cluster.policy.elastic import (
    FORGIVEN_SECONDS,
    GATHER_SECONDS,
    MOST_FAILURES,
    JoinFailure,
    RunningGang,
    SlotAssignment,
    is_steady,
    missing,
    next_change,
    retry_at,
    superfluous,
)
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import EndReason, Intent, JobState, RankState
from paceline.training.schema.parallelism import REPLICAS, Parallelism
from tests.cluster.policy.test_decide import job, rank

NOW = datetime(2026, 11, 20, 9, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)


def member(number: int, node: str = "", *, leaving: bool = False) -> SlotAssignment:
    return SlotAssignment(number, node or f"n{number}", 0, leaving)


def warm(number: int, *, since: datetime = LONG_AGO, leaving: bool = False) -> SlotAssignment:
    return SlotAssignment(number, f"n{number}", 0, leaving, ready_since=since)


def cold(number: int) -> SlotAssignment:
    return SlotAssignment(number, f"n{number}", 0)


def gang(*members: SlotAssignment, parked: tuple[SlotAssignment, ...] = (), target: int = 2, **known: Any) -> RunningGang:
    facts = {"most_per_node": 1, "least": 1, "most": target, "ceiling": 8} | known
    return RunningGang("job", "cpu", members=members, parked=parked, target=target, **facts)


def change(gang: RunningGang, coming: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]] | str | None:
    decision = next_change(gang, coming, NOW)
    if decision is None:
        return None
    return (decision.members.survivors, decision.members.joining) if isinstance(decision, ResizeGang) else decision.to.value


PAIRS = Parallelism(strategy="fsdp", shard=2)  # worlds of two, four, six ranks
TWO = (member(0), member(1))
GOING = (member(0, leaving=True), member(1))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (gang(*TWO), None),
        (gang(*TWO, parked=(warm(2),), spares=1), None),  # a spare waits for somebody to die
        (gang(member(0), parked=(cold(1),)), None),
        (gang(member(0), parked=(warm(1),)), ((0,), (1,))),
        (gang(member(0), parked=(warm(1), warm(2)), target=3), ((0,), (1, 2))),
        (gang(member(0), parked=(warm(1, since=NOW), cold(2)), target=3), None),  # one change takes both
        (gang(member(0), parked=(warm(1), cold(2)), target=3), ((0,), (1,))),  # but not for ever
        (gang(member(0), parked=(warm(1, since=NOW), cold(2)), target=2, spares=1), ((0,), (1,))),
        (gang(*TWO, member(2)), ((0, 1), ())),
        (gang(member(0, "a"), member(1, "b"), member(2, "b")), ((1, 2), ())),  # a whole node becomes free
        (gang(*TWO, parked=(warm(2),), most=3), ((0, 1), (2,))),
        (gang(*TWO, parked=(warm(2),), most=3, spares=1), None),  # a spare is not there to grow
        (gang(*TWO, parked=(warm(2),), most=3, yields=True), None),
        (gang(*TWO, member(2), most=3), None),
        (gang(*TWO, member(2), most=3, yields=True), ((0, 1), ())),
        (gang(*GOING, parked=(warm(2),)), ((1,), (2,))),
        (gang(*GOING, parked=(cold(2),)), None),  # whoever leaves waits for a replacement
        (gang(*GOING), ((1,), ())),
        (gang(*GOING, least=2), "stopping"),  # too few would be left
        (gang(*GOING, least=2, parked=(warm(2),)), ((0, 1), (2,))),  # it leaves once the other has the state
        (gang(member(0, leaving=True), target=1), "stopping"),
        (gang(member(0, leaving=True), parked=(warm(1),), target=1), ((0,), (1,))),
        (gang(member(0, leaving=True), parked=(warm(1, leaving=True),), target=1), "stopping"),
        (gang(member(0, leaving=True), member(1, leaving=True), parked=(warm(2), warm(3)), ceiling=2), ((0,), (2,))),
        (gang(member(0, leaving=True), member(1), member(2)), ((1, 2), ())),
        # groups of two ranks
        (gang(*TWO, parked=(warm(2),), target=4, plan=PAIRS), None),
        (gang(*TWO, parked=(warm(2), warm(3), warm(4)), target=6, plan=PAIRS), ((0, 1), (2, 3))),
        (gang(*GOING, member(2), member(3), target=4, plan=PAIRS), ((1, 2), ())),
        (gang(*GOING, member(2), member(3), parked=(warm(4),), target=4, plan=PAIRS), ((1, 2, 3), (4,))),
        (gang(*GOING, member(2), member(3), parked=(cold(4),), target=4, plan=PAIRS), None),
        (gang(*GOING, least=2, plan=PAIRS), "stopping"),
        (gang(*GOING, parked=(warm(2),), least=2, plan=PAIRS), ((1,), (2,))),  # from what is saved first
        (gang(*TWO, member(2), member(3), member(4), target=3, plan=PAIRS), ((0, 1), ())),
    ],
)
def test_the_next_membership(known: RunningGang, expected: Any) -> None:
    assert change(known) == expected


def test_no_rank_leaves_while_a_replacement_was_just_asked_for() -> None:
    assert change(gang(*GOING), coming=1) is None


def test_a_change_names_the_ranks_and_the_reason() -> None:
    decision = next_change(gang(*GOING, parked=(warm(2),)), 0, NOW)
    assert isinstance(decision, ResizeGang)
    assert (decision.reason, decision.at_boundary) == (EndReason.RESIZED, True)
    assert decision.why == "rank 2 is warm and takes a place; the node of rank 0 drains: still 2 ranks"


@pytest.mark.parametrize(
    ("known", "lacks", "goes"),
    [
        (gang(*TWO), 0, ()),
        (gang(member(0)), 1, ()),
        (gang(*GOING), 1, ()),
        (gang(*TWO, spares=2), 2, ()),
        (gang(member(0), parked=(cold(1),), spares=1), 1, ()),
        (gang(*TWO, parked=(cold(2),)), 0, (2,)),  # resized meanwhile
        (gang(*TWO, parked=(cold(2), warm(3)), spares=1), 0, (2,)),  # the readier one is kept
        (gang(*TWO, parked=(warm(2, leaving=True),), spares=1), 1, (2,)),
        (gang(*TWO, parked=(cold(2),), most=3, yields=True), 0, (2,)),
    ],
)
def test_missing_and_superfluous_ranks(known: RunningGang, lacks: int, goes: tuple[int, ...]) -> None:
    assert (missing(known, known.target), tuple(process.rank for process in superfluous(known))) == (lacks, goes)


def test_attempts_come_ever_more_slowly_and_then_no_more() -> None:
    join_failures = [JoinFailure(NOW + timedelta(seconds=number), "boom") for number in range(MOST_FAILURES)]
    waits = [(retry_at(join_failures[: count + 1]) or NOW) - join_failures[count].at for count in range(MOST_FAILURES)]
    assert [wait.total_seconds() for wait in waits[:-1]] == [1, 2, 4, 8, 16]
    assert retry_at(join_failures) == NOW + timedelta(seconds=FORGIVEN_SECONDS)
    assert retry_at([]) is None


@pytest.mark.parametrize(
    ("view", "steady"),
    [
        (job(JobState.RUNNING, rank(0), rank(1), min_ranks=1), True),
        (job(JobState.RUNNING, rank(0), min_ranks=None), False),
        (job(JobState.RUNNING, rank(0), rank(1, reachable=False), min_ranks=1), False),
        (job(JobState.RUNNING, rank(0), rank(1, RankState.EXITED), min_ranks=1), False),
        (job(JobState.RUNNING, rank(0), min_ranks=1, desired=Intent.PAUSE), False),
        (job(JobState.RESIZING, rank(0), min_ranks=1), False),
    ],
)
def test_ranks_come_and_go_only_while_nothing_else_happens(view: JobView, steady: bool) -> None:
    assert is_steady(view) is steady


SINCE = st.sampled_from([None, NOW, NOW - timedelta(seconds=GATHER_SECONDS / 2), LONG_AGO])


@st.composite
def gangs(draw: st.DrawFn) -> RunningGang:
    plan = draw(st.sampled_from([REPLICAS, Parallelism(strategy="fsdp"), PAIRS]))
    unit = 2 if plan == PAIRS else 1
    size, waiting = unit * draw(st.integers(1, 5)), draw(st.integers(0, 4))
    members = tuple(SlotAssignment(number, draw(st.sampled_from("abc")), number, draw(st.booleans())) for number in range(size))
    parked = tuple(
        SlotAssignment(size + number, draw(st.sampled_from("abc")), size + number, draw(st.booleans()), draw(SINCE))
        for number in range(waiting)
    )
    target = unit * draw(st.integers(1, 5))
    return RunningGang(
        "job",
        "cpu",
        2,
        members,
        parked,
        least=draw(st.integers(1, target)),
        target=target,
        most=target + unit * draw(st.integers(0, 2)),
        ceiling=draw(st.integers(max(size, target), 12)),
        plan=plan,
        spares=draw(st.integers(0, 2)),
        yields=draw(st.booleans()),
    )


@given(gangs(), st.integers(0, 2))
def test_whatever_the_gang_a_change_is_one(known: RunningGang, coming: int) -> None:
    decision = next_change(known, coming, NOW)
    if not isinstance(decision, ResizeGang):
        return
    members = decision.members
    everyone = {process.rank: process for process in (*known.members, *known.parked)}
    assert members.survivors, "somebody must bring the state along"
    assert set(members.survivors) <= {process.rank for process in known.members}
    assert all(everyone[rank].ready_since is not None and not everyone[rank].leaving for rank in members.joining)
    assert set(members.survivors) != {process.rank for process in known.members} or members.joining, "nothing would change"
    size = len(members.survivors) + len(members.joining)
    assert known.plan.misfit(size) is None
    assert size <= max(known.ceiling, len(known.members))
    assert size <= max(known.limit + len(known.leaving), len(known.members))


def all_granted(known: RunningGang) -> list[RunningGang]:
    """What becomes of it when everything that it asks for comes true; slots are free on other nodes."""
    history = [known]
    for _ in range(12):
        lacks = missing(known, known.limit)
        decision = next_change(known, lacks, NOW)
        if decision is not None and not isinstance(decision, ResizeGang):
            return history
        if decision is not None:
            processes = {process.rank: process for process in (*known.members, *known.parked)}
            stay = [processes[rank] for rank in (*decision.members.survivors, *decision.members.joining)]
            rest = [process for process in known.parked if process.rank not in decision.members.joining]
            members = tuple(replace(process, rank=number, ready_since=None) for number, process in enumerate(stay))
            known = replace(known, members=members, parked=tuple(replace(process, rank=len(stay) + n) for n, process in enumerate(rest)))
        else:
            gone = superfluous(known)
            first = max(process.rank for process in (*known.members, *known.parked)) + 1
            new = [SlotAssignment(first + number, "free", first + number, ready_since=LONG_AGO) for number in range(lacks)]
            if not gone and not new and all(process.ready_since == LONG_AGO for process in known.parked):
                return history
            ready = tuple(replace(process, ready_since=LONG_AGO) for process in known.parked if process not in gone)
            known = replace(known, parked=(*ready, *new))
        history.append(known)
    raise AssertionError(f"it never comes to rest: {history}")


@given(gangs())
def test_with_slots_enough_every_gang_comes_to_its_size_and_leaves_what_drains(known: RunningGang) -> None:
    *_, last = all_granted(replace(known, ceiling=20))
    assert not last.leaving
    assert len(last.members) == last.limit
    assert len(last.pool) == last.spares


@given(gangs())
def test_on_the_way_it_never_falls_below_its_least_by_its_own_doing(known: RunningGang) -> None:
    sizes = [len(each.members) for each in all_granted(replace(known, ceiling=20))]
    assert min(sizes) >= min(known.least, sizes[0])
