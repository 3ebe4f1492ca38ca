"""Desired against actual, as a table: what is there, what is wanted, what is done."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from paceline.cluster.agent.ranks.ranks import ExitCause, RankPhase, RankRecord
from paceline.cluster.agent.ranks.reconcile import (
    UNCLAIMED_SECONDS,
    CallRank,
    DeleteCheckpoint,
    DropStacks,
    ForgetRank,
    MarkRankExited,
    MoveRank,
    NodeAction,
    PauseRank,
    ProfileRank,
    ReadStacks,
    RecordGradients,
    ReleaseRank,
    StartRank,
    StoreNamespace,
    TerminateRank,
    observe,
    reconcile,
    store_namespaces,
)
from paceline.cluster.protocol import CheckpointToDelete, Desired, Profile, RankKey, StacksRequest, WantedGradients
from paceline.cluster.stacks import StackSample
from paceline.cluster.states import RankState
from paceline.training.link import GradientsRequest, ProcessIdentity, RankOrder, TraceRequest
from paceline.training.schema.script import OWN_GRACE_SECONDS
from paceline.training.spec.stored import StoredSpec
from tests.cluster.agent.conftest import assignment, training_job, world

Action = Literal["run", "pause", "release", "stop"]

NOW = 1_000_000.0
SPEC = StoredSpec(training_job())
KEY = RankKey("job", 1, 0)
ENDED: dict[str, Any] = {"phase": RankPhase.EXITED, "ending": ExitCause(outcome="completed", exit_code=0, time=NOW)}


def rank(generation: int = 1, **changes: Any) -> RankRecord:
    order = RankOrder(spec=SPEC, world=world("job", generation=generation), folder="/data", agent_socket="/socket")
    known: dict[str, Any] = {"phase": RankPhase.ALIVE, "pid": 7}
    return RankRecord(order=order, **known | changes)


def desired(action: Action | None, generation: int = 1) -> Desired:
    return Desired(
        revision=5, assignments=(assignment("job", world("job", generation=generation), action=action, grace=2.0),) if action else ()
    )


def preparing(**environment: Any) -> RankRecord:
    """A rank for which its node gets what `environment` names."""
    started = rank(phase=RankPhase.PREPARING, pid=None)
    spec = StoredSpec(training_job() | {"environment": environment})
    return msgspec.structs.replace(started, order=msgspec.structs.replace(started.order, spec=spec))


@pytest.mark.parametrize(
    ("there", "action", "expected"),
    [
        (None, "run", [StartRank(world("job"), SPEC)]),
        (None, "pause", []),
        (None, "stop", []),
        (None, None, []),
        (rank(), "run", []),
        (rank(phase=RankPhase.PREPARING, pid=None), "run", []),
        (rank(**ENDED), "run", []),  # only a new generation starts it again
        (rank(), "pause", [PauseRank(KEY)]),
        (rank(**ENDED), "pause", []),
        (None, "release", []),
        (rank(), "release", [ReleaseRank(KEY)]),
        (rank(phase=RankPhase.PREPARING, pid=None), "release", [ReleaseRank(KEY)]),  # repeated until there is a process that hears it
        (rank(parked=True), "release", [ReleaseRank(KEY)]),
        (rank(parked=True), "pause", [PauseRank(KEY)]),
        (rank(**ENDED), "release", []),
        (rank(), "stop", [TerminateRank(KEY, 2.0)]),
        (rank(stopping=True), "stop", []),
        (rank(**ENDED), "stop", []),
        (rank(), None, [TerminateRank(KEY, OWN_GRACE_SECONDS)]),
        (rank(stopping=True), None, []),
        (rank(**ENDED), None, []),  # not all of it is with the coordinator yet
        (rank(**ENDED, drained=True), None, [ForgetRank(KEY)]),
        (rank(phase=RankPhase.EXITED, ending=ExitCause(outcome="failed", time=NOW - UNCLAIMED_SECONDS - 1)), None, [ForgetRank(KEY)]),
    ],
)
def test_what_is_done(there: RankRecord | None, action: Action | None, expected: list[NodeAction]) -> None:
    assert reconcile(desired(action), {KEY: there} if there else {}, NOW) == expected


@pytest.mark.parametrize(
    ("there", "ranks", "asked"),
    [
        (rank(joined=True), (0, 3), True),
        (rank(joined=True), (3,), False),  # it has answered, or is not meant
        (rank(), (0,), False),  # it does not train yet
        (rank(joined=True, entered=False), (0,), False),
        (rank(**ENDED), (0,), False),
    ],
)
def test_a_trace_and_gradients_are_asked_for_on_each_tick_until_they_are_there(
    there: RankRecord, ranks: tuple[int, ...], asked: bool
) -> None:
    wanted = assignment("job", world("job"), action="run")
    gradients = WantedGradients(id="g", names=("*",), snapshots=True, ranks=ranks)
    wanted = msgspec.structs.replace(wanted, profile=Profile(id="p", steps=3, ranks=ranks), gradients=gradients)
    actions = reconcile(Desired(revision=5, assignments=(wanted,)), {KEY: there}, NOW)
    assert (ProfileRank(KEY, TraceRequest(id="p", steps=3)) in actions) is asked
    assert (RecordGradients(KEY, GradientsRequest(id="g", names=("*",), snapshots=True)) in actions) is asked


def test_a_newer_generation_starts_once_the_older_has_left_the_slot() -> None:
    wanted = desired("run", generation=2)
    assert reconcile(wanted, {KEY: rank()}, NOW) == [TerminateRank(KEY, OWN_GRACE_SECONDS)]
    assert reconcile(wanted, {KEY: rank(stopping=True)}, NOW) == []
    assert reconcile(wanted, {KEY: rank(**ENDED)}, NOW) == [StartRank(world("job", generation=2), SPEC)]


def test_checkpoints_to_delete_are_passed_on() -> None:
    checkpoint = CheckpointToDelete(id="c", directory="/checkpoints/job/step-1.g1")
    assert reconcile(Desired(revision=1, assignments=(), delete_checkpoints=(checkpoint,)), {}, NOW) == [DeleteCheckpoint(checkpoint)]


def test_only_the_first_node_serves_a_generations_store() -> None:
    assert store_namespaces(desired("run"), {}) == [StoreNamespace("job", 1, "token", at_boundary=False)]
    other = Desired(revision=1, assignments=(assignment("job", world("job", node_rank=1)),))
    assert store_namespaces(other, {}) == []


@pytest.mark.parametrize(
    ("there", "state"),
    [
        (rank(phase=RankPhase.PREPARING, pid=None), RankState.STARTING),
        (preparing(requirements=["einops"]), RankState.ASSIGNED),  # which may take minutes, and no process is late
        (preparing(code={"bundle": "0" * 64}), RankState.ASSIGNED),
        (rank(), RankState.STARTING),
        (rank(entered=False), RankState.ASSIGNED),  # a process that has yet to come here
        (rank(parked=True), RankState.PARKED),
        (rank(parked=True, entered=False), RankState.PARKED),
        (rank(joined=True), RankState.RUNNING),
        (rank(joined=True, stopping=True), RankState.STOPPING),
        (rank(**ENDED), RankState.EXITED),
    ],
)
def test_states(there: RankRecord, state: RankState) -> None:
    report = observe(desired("run"), {KEY: there}, (), NOW)
    assert report.revision == 5
    assert [observed.state for observed in report.assignments[0].ranks] == [state]


@pytest.mark.parametrize(
    ("action", "state", "drained"),
    [("run", RankState.ASSIGNED, False), ("stop", RankState.EXITED, True), ("pause", RankState.EXITED, True)],
)
def test_a_rank_that_is_not_there_is_reported_all_the_same(action: Action, state: RankState, drained: bool) -> None:
    observed = observe(desired(action), {}, (), NOW).assignments[0].ranks[0]
    assert (observed.state, observed.drained, observed.pid) == (state, drained, None)


def test_ranks_of_one_generation_may_be_told_different_things() -> None:
    everyone = Desired(
        revision=1,
        assignments=(assignment("job", world("job")), assignment("job", world("job", rank=1), action="stop")),
    )
    (report,) = observe(everyone, {}, (), NOW).assignments
    assert [(observed.rank, observed.state) for observed in report.ranks] == [(0, RankState.ASSIGNED), (1, RankState.EXITED)]


def test_ranks_that_are_not_desired_are_reported_too() -> None:
    report = observe(desired("run", generation=2), {KEY: rank(joined=True, step=9, last_news=NOW - 3)}, ("c",), NOW)
    assert [assignment.generation for assignment in report.assignments] == [1, 2]
    old = report.assignments[0].ranks[0]
    assert (old.step, old.progress_age) == (9, 3)
    assert report.deleted_checkpoints == ("c",)


HERE = world("job", generation=2, birth=ProcessIdentity(1, 0))
LATER = world("job", generation=3, birth=ProcessIdentity(1, 0))


def carried(place: Any, **changes: Any) -> RankRecord:
    order = RankOrder(spec=SPEC, world=place, folder="/data", agent_socket="/socket")
    known: dict[str, Any] = {"phase": RankPhase.ALIVE, "pid": 7, "entered": False}
    return RankRecord(order=order, **known | changes)


@pytest.mark.parametrize(
    ("there", "wanted", "expected"),
    [
        ([rank()], HERE, [MoveRank(KEY, HERE, SPEC)]),
        ([rank(phase=RankPhase.PREPARING, pid=None)], HERE, []),  # not yet a process: it moves when it is
        ([rank(**ENDED)], HERE, [MarkRankExited(KEY, HERE, SPEC)]),
        ([], HERE, [MarkRankExited(None, HERE, SPEC)]),
        ([rank(phase=RankPhase.MOVED), carried(HERE)], HERE, [CallRank(RankKey("job", 2, 0))]),
        ([rank(phase=RankPhase.MOVED), carried(HERE, entered=True)], HERE, []),
        ([rank(phase=RankPhase.MOVED, drained=True), carried(HERE, entered=True)], HERE, [ForgetRank(KEY)]),
        ([rank()], LATER, [MoveRank(KEY, LATER, SPEC)]),  # generation 2 was never heard of here
        ([rank(phase=RankPhase.MOVED), carried(HERE)], LATER, [MoveRank(RankKey("job", 2, 0), LATER, SPEC)]),
        ([rank(phase=RankPhase.MOVED), carried(HERE, **ENDED)], LATER, [MarkRankExited(RankKey("job", 2, 0), LATER, SPEC)]),
    ],
)
def test_living_processes_take_their_places_in_a_newer_generation(there: list[RankRecord], wanted: Any, expected: list[NodeAction]) -> None:
    now = Desired(revision=5, assignments=(assignment("job", wanted),))
    assert reconcile(now, {each.key: each for each in there}, NOW) == expected


def test_a_moved_rank_holds_no_slot_and_says_that_it_has_moved() -> None:
    place = world("job", generation=3)
    wanted = Desired(revision=5, assignments=(assignment("job", place),))
    moved = {KEY: rank(phase=RankPhase.MOVED)}
    assert reconcile(wanted, moved, NOW) == [StartRank(place, SPEC)]
    assert observe(wanted, moved, (), NOW).assignments[0].ranks[0].state == RankState.MOVED


@pytest.mark.parametrize(
    ("there", "next_", "served"),
    [
        ([rank()], {"at_boundary": True}, [1, 2]),  # it trains on in the old generation
        ([rank(phase=RankPhase.MOVED), carried(HERE)], {"at_boundary": True}, [1, 2]),  # it was told, and has yet to go
        ([rank(phase=RankPhase.MOVED), carried(HERE, entered=True)], {"at_boundary": True}, [2]),
        ([rank(phase=RankPhase.MOVED), carried(HERE, **ENDED)], {"at_boundary": True}, [2]),
        ([rank()], {"at_boundary": True, "node_rank": 1}, [1]),  # another node is the first one from now on
        ([rank()], {}, [2]),  # a fault: the old one is over
        ([], {"at_boundary": True}, [2]),
    ],
)
def test_the_store_of_a_generation_that_is_well_serves_until_its_ranks_have_left(
    there: list[RankRecord], next_: dict[str, Any], served: list[int]
) -> None:
    place = world("job", generation=2, birth=ProcessIdentity(1, 0), **next_)
    wanted = Desired(revision=5, assignments=(assignment("job", place),))
    namespaces = store_namespaces(wanted, {each.key: each for each in there})
    assert [namespace.generation for namespace in namespaces] == served


@pytest.mark.parametrize(
    ("known", "asked", "expected"),
    [
        (None, None, []),
        (None, ("r1", (0,)), [ReadStacks(KEY, "r1")]),
        (None, ("r1", (1,)), []),
        ("r1", ("r1", (0,)), []),
        ("r1", ("r2", (0,)), [ReadStacks(KEY, "r2")]),
        ("r1", ("r2", (1,)), [DropStacks(KEY)]),
        ("r1", None, [DropStacks(KEY)]),
    ],
)
def test_stacks_are_read_once_for_each_request(
    known: str | None, asked: tuple[str, tuple[int, ...]] | None, expected: list[NodeAction]
) -> None:
    there = rank(joined=True, stacks=StackSample(id=known) if known else None)
    request = StacksRequest(id=asked[0], ranks=asked[1]) if asked else None
    wanted = Desired(revision=5, assignments=(msgspec.structs.replace(assignment("job"), stacks=request),))
    assert reconcile(wanted, {KEY: there}, NOW) == expected
    assert there.observed(1.0).stacks == there.stacks
