"""Every schedule, in every size: complete, in a possible order, free of deadlock, and as short as its source says."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.parallelism.pipelines.order import Program, Receive, Send, Times, forward_programs, programs, simulate
from paceline.parallelism.pipelines.schedules import (
    SCHEDULES,
    GPipe,
    Interleaved,
    OneForwardOneBackward,
    OperationKind,
    PipelineAction,
    PipelineSchedule,
    ScheduleError,
    ZeroBubble,
    ZeroBubbleV,
)


@st.composite
def schedules(draw: st.DrawFn) -> PipelineSchedule:
    kind = draw(st.sampled_from(list(SCHEDULES.values())))
    chunks = draw(st.integers(kind.fewest_chunks, int(min(3, kind.most_chunks))))
    return kind(draw(st.integers(1, 4)), draw(st.integers(0, 9)), chunks)


def actions(program: Program) -> list[PipelineAction]:
    return [entry for entry in program if isinstance(entry, PipelineAction)]


@settings(deadline=None)  # a busy machine takes its time
@given(schedules())
def test_every_stage_does_everything_once_with_every_micro_batch_in_their_order(schedule: PipelineSchedule) -> None:
    for rank, program in enumerate(programs(schedule)):
        expected = {
            (kind, stage, index) for kind in schedule.kinds for stage in schedule.stages_of(rank) for index in range(schedule.micro_batches)
        }
        assert Counter(actions(program)) == Counter(PipelineAction(*each) for each in expected)
        for kind, stage in {(kind, stage) for kind, stage, _ in expected}:
            order = [action.micro_batch for action in actions(program) if (action.kind, action.stage) == (kind, stage)]
            assert order == sorted(order)


class Replay:
    """The programs run as ranks do, with sends that wait until their receiver is there: the least that any transport promises."""

    def __init__(self, schedule: PipelineSchedule, by_rank: tuple[Program, ...]) -> None:
        self.schedule, self.programs = schedule, by_rank
        self.at = [0] * schedule.ranks
        self.posted: set[tuple[int, PipelineAction]] = set()
        self.sent: set[tuple[int, PipelineAction]] = set()
        self.done: set[PipelineAction] = set()

    def step(self, rank: int) -> bool:
        entry = self.programs[rank][self.at[rank]]
        if isinstance(entry, Receive):
            self.posted.add((rank, entry.action))
        elif isinstance(entry, Send):
            if (entry.rank, entry.action) not in self.posted:
                return False
            self.sent.add((entry.rank, entry.action))
        elif not all(self.has(rank, need) for need in self.schedule.needs(entry)):
            return False
        else:
            self.done.add(entry)
        self.at[rank] += 1
        return True

    def has(self, rank: int, action: PipelineAction) -> bool:
        return (rank, action) in self.sent if self.schedule.rank_of(action.stage) != rank else action in self.done

    def run(self) -> None:
        while any(self.at[rank] < len(program) and self.step(rank) for rank, program in enumerate(self.programs)):
            pass
        assert self.at == [len(program) for program in self.programs], "stuck"


@settings(deadline=None)  # a busy machine takes its time
@given(schedules())
def test_no_order_waits_for_itself(schedule: PipelineSchedule) -> None:
    Replay(schedule, programs(schedule)).run()
    Replay(schedule, forward_programs(schedule)).run()


@settings(deadline=None)  # a busy machine takes its time
@given(schedules())
def test_both_ends_have_their_transfers_in_the_same_order(schedule: PipelineSchedule) -> None:
    """NCCL matches them by nothing else."""
    found = programs(schedule)
    for left in range(schedule.ranks):
        for right in range(left):
            mine = [
                (entry.action, isinstance(entry, Send))
                for entry in found[left]
                if not isinstance(entry, PipelineAction) and entry.rank == right
            ]
            theirs = [
                (entry.action, isinstance(entry, Receive))
                for entry in found[right]
                if not isinstance(entry, PipelineAction) and entry.rank == left
            ]
            assert mine == theirs


@pytest.mark.parametrize("kind", SCHEDULES.values())
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_the_bubble_is_the_one_of_the_formula(kind: type[PipelineSchedule], ranks: int, rounds: int) -> None:
    for chunks in range(kind.fewest_chunks, int(min(3, kind.most_chunks)) + 1):
        schedule = kind(ranks, ranks * rounds, chunks)
        assert simulate(schedule, Times()).bubble == pytest.approx(schedule.bubble)


def test_formulas() -> None:
    assert GPipe(4, 8).bubble == OneForwardOneBackward(4, 8).bubble == 3 / 11
    assert Interleaved(4, 8, 2).bubble == 3 / 19
    assert ZeroBubble(4, 8).bubble == 1 / 9
    assert ZeroBubbleV(4, 8, 2).bubble == 1 / 17
    assert OneForwardOneBackward(1, 8).bubble == OneForwardOneBackward(4, 0).bubble == 0


def test_one_forward_one_backward_holds_as_many_micro_batches_as_ranks_behind_and_gpipe_all() -> None:
    assert simulate(OneForwardOneBackward(4, 12), Times()).most_held == (4, 3, 2, 1)
    assert simulate(GPipe(4, 12), Times()).most_held == (12, 12, 12, 12)
    assert simulate(ZeroBubble(4, 12), Times()).most_held == (4, 4, 4, 4)
    assert simulate(ZeroBubbleV(4, 12, 2), Times()).most_held == (8, 8, 8, 8)


def test_a_slower_backward_changes_the_bubble_of_zero_bubble_alone() -> None:
    slow = Times(forward=1, input=2, weight=1)
    assert simulate(OneForwardOneBackward(4, 8), slow).bubble == pytest.approx(3 / 11)
    assert simulate(ZeroBubble(4, 8), slow).bubble == pytest.approx(3 * 2 / (8 * 4 + 3 * 2))  # (p - 1)(F + I - W)


def test_one_micro_batch_goes_through_one_stage_after_the_other() -> None:
    first, second = programs(GPipe(2, 1))
    there, back = PipelineAction(OperationKind.FORWARD, 0, 0), PipelineAction(OperationKind.BACKWARD, 1, 0)
    assert first == (there, Send(there, 1), Receive(back, 1), PipelineAction(OperationKind.BACKWARD, 0, 0))
    assert second == (Receive(there, 0), PipelineAction(OperationKind.FORWARD, 1, 0), back, Send(back, 0))


def test_what_does_not_exist_names_the_way_out() -> None:
    with pytest.raises(ScheduleError, match="zero_bubble_v with 1 stages on each rank does not exist; use 2"):
        ZeroBubbleV(2, 4)
    with pytest.raises(ScheduleError, match="interleaved_1f1b with 1 stages on each rank does not exist; use 2 or more"):
        Interleaved(2, 4, 1)
    with pytest.raises(ScheduleError, match="1f1b with 2 stages on each rank does not exist; use 1"):
        OneForwardOneBackward(2, 4, 2)


@settings(deadline=None)
@given(schedules())
def test_no_rank_holds_more_than_its_schedule_says(schedule: PipelineSchedule) -> None:
    course = simulate(schedule, Times())
    assert all(found <= schedule.most_held(rank) for rank, found in enumerate(course.most_held))
    assert all(found <= schedule.most_waiting(rank) for rank, found in enumerate(course.most_waiting))


@pytest.mark.parametrize("kind", [GPipe, OneForwardOneBackward, Interleaved, ZeroBubble])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 3), (2, 8), (4, 3), (4, 16)])
def test_what_is_held_is_exact(kind: type[PipelineSchedule], ranks: int, micro_batches: int) -> None:
    schedule = kind(ranks, micro_batches, kind.fewest_chunks)
    assert simulate(schedule, Times()).most_held == tuple(map(schedule.most_held, range(ranks)))


@pytest.mark.parametrize("kind", SCHEDULES.values())
@pytest.mark.parametrize(("ranks", "micro_batches"), [(1, 3), (2, 8), (3, 12), (4, 8), (4, 16), (4, 19)])
def test_how_many_wait_for_their_weights_gradients_is_exact(kind: type[PipelineSchedule], ranks: int, micro_batches: int) -> None:
    schedule = kind(ranks, micro_batches, kind.fewest_chunks)
    assert simulate(schedule, Times()).most_waiting == tuple(map(schedule.most_waiting, range(ranks)))
