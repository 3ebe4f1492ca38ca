"""From silence and stacks to a notice, an end, or nothing."""

from __future__ import annotations

import msgspec
import pytest

from paceline.cluster.policy.quiet import (
    ANSWER_SECONDS,
    BUSY_SECONDS,
    CONFIRM_SECONDS,
    LOOK_AGAIN_SECONDS,
    KeepReading,
    QuietAction,
    ReportHang,
    RequestStacks,
    StackReading,
    Suspicion,
    WithdrawReport,
    described,
    hang_seconds_of,
    next_action,
    patience_of,
    verdict,
)
from paceline.cluster.stacks import Difference, StackPosition, compare

NOW = 10_000.0
SINCE = NOW - 400.0
ASKED = Suspicion(since=SINCE, asked_at=NOW)
POSITIONS = {0: StackPosition("waits", "all_reduce", "step in f.py:9"), 1: StackPosition("elsewhere", where="f.py:24")}


def look(*, at_work: bool = False, complete: bool = True) -> StackReading:
    return StackReading(Difference("rank 1 is at f.py:24", (1,)), at_work, complete, POSITIONS, {1: "  File"})


def test_a_job_in_which_a_rank_speaks_is_left_alone() -> None:
    assert next_action(None, None, None, NOW, ends=False) is None


def test_stacks_are_asked_for_once_all_are_quiet_and_waited_for() -> None:
    assert next_action(SINCE, None, None, NOW, ends=False) == RequestStacks(ASKED)
    assert next_action(SINCE, ASKED, look(complete=False), NOW + 1, ends=False) is None
    assert next_action(SINCE, ASKED, look(complete=False), NOW + ANSWER_SECONDS, ends=False) is not None


def test_a_notice_needs_two_looks() -> None:
    first = next_action(SINCE, ASKED, look(), NOW + 1, ends=False)
    assert isinstance(first, KeepReading)
    assert next_action(SINCE, first.suspicion, None, NOW + CONFIRM_SECONDS - 1, ends=False) is None
    again = next_action(SINCE, first.suspicion, None, NOW + CONFIRM_SECONDS, ends=False)
    assert isinstance(again, RequestStacks)
    second = next_action(SINCE, again.suspicion, look(), NOW + CONFIRM_SECONDS + 1, ends=False)
    assert isinstance(second, ReportHang)
    known = second.suspicion
    assert (known.ranks, known.places["0"], known.where) == ((1,), "waits in all_reduce (step in f.py:9)", {"1": "f.py:24"})
    assert described(known, NOW + 20) == "no output and no step of any rank for 7 min: rank 1 is at f.py:24"
    assert verdict(known) is None  # a notice ends nothing
    assert next_action(SINCE, known, None, NOW + 9_999, ends=False) is None


def test_ranks_that_compute_are_told_of_after_an_hour_only() -> None:
    busy = next_action(SINCE, ASKED, look(at_work=True), NOW + 1, ends=False)
    assert isinstance(busy, KeepReading)
    assert next_action(SINCE, busy.suspicion, None, NOW + LOOK_AGAIN_SECONDS - 1, ends=False) is None
    again = next_action(SINCE, busy.suspicion, None, SINCE + BUSY_SECONDS, ends=False)
    assert isinstance(again, RequestStacks)
    assert isinstance(next_action(SINCE, again.suspicion, look(at_work=True), SINCE + BUSY_SECONDS, ends=False), ReportHang)


def looked(places: list[dict[int, str]], idle: tuple[int, ...] = ()) -> tuple[list[QuietAction], float]:
    """The actions after looks at busy ranks that are at these lines, a minute apart, until one reports; and how long the job had been quiet by then."""
    known, now, actions = ASKED, NOW, list[QuietAction]()
    for lines in places:
        positions = {rank: StackPosition("elsewhere", where=where) for rank, where in lines.items()}
        stacks = {rank: f"stack of {rank}" for rank in lines}
        action = next_action(SINCE, known, StackReading(compare(positions), True, True, positions, stacks, idle), now, ends=False)
        assert isinstance(action, KeepReading | ReportHang)
        actions.append(action)
        if isinstance(action, ReportHang):
            break
        now += CONFIRM_SECONDS if action.suspicion.looks else LOOK_AGAIN_SECONDS
        asked = next_action(SINCE, action.suspicion, None, now, ends=False)
        assert isinstance(asked, RequestStacks)
        known = asked.suspicion
    return actions, now - SINCE


ITEM = "train in t.py:20"


def test_a_rank_that_stays_at_its_line_waits_on_its_card_for_the_one_that_moves() -> None:
    """With NCCL a rank waits in `loss.item()`, with a core and a card at 100 %: the hang was told after an hour, and named nobody."""
    actions, seconds = looked([{0: ITEM, 1: f"load in d.py:{number}"} for number in range(10)])
    last = actions[-1]
    assert isinstance(last, ReportHang)
    assert seconds < 800
    assert (last.suspicion.ranks, last.suspicion.where, last.suspicion.stack) == ((1,), {"1": "load in d.py:4"}, "stack of 1")
    assert last.suspicion.what == "rank 1 is at load in d.py:4 while rank 0 is at train in t.py:20 and stays there"


def test_of_ranks_that_all_stay_the_one_with_an_idle_card_differs() -> None:
    actions, _ = looked([{0: ITEM, 1: "load in d.py:5", 2: ITEM}] * 10, idle=(1,))
    assert isinstance(actions[-1], ReportHang)
    assert actions[-1].suspicion.ranks == (1,)
    two, _ = looked([{0: ITEM, 1: "load in d.py:5"}] * 10)
    assert isinstance(two[-1], ReportHang)
    assert two[-1].suspicion.ranks == (), "nothing tells which of two it is"


@pytest.mark.parametrize(
    "places",
    [
        [{0: ITEM, 1: ITEM}] * 10,  # each step waits for the cards there
        [{0: f"train in t.py:{number}", 1: f"train in t.py:{number + 1}"} for number in range(10)],
        [{0: ITEM, 1: ITEM if number % 3 else "train in t.py:9"} for number in range(10)],  # it is met at work now and then
    ],
    ids=["all at one line", "all move", "not in a row"],
)
def test_a_long_epoch_is_none(places: list[dict[int, str]]) -> None:
    actions, _ = looked(places)
    assert len(actions) == 10
    assert all(isinstance(action, KeepReading) for action in actions)


@pytest.mark.parametrize("at_work", [False, True])
def test_by_its_users_word_it_ends_at_the_first_look(at_work: bool) -> None:
    """An endless loop is busy too."""
    step = next_action(SINCE, ASKED, look(at_work=at_work), NOW + 1, ends=True)
    assert isinstance(step, ReportHang)
    found = verdict(step.suspicion)
    assert found is not None
    assert (found.culprits, found.what) == ((1,), "hung: no output and no step of any rank for 7 min: rank 1 is at f.py:24")


def test_output_withdraws_what_was_told() -> None:
    known = msgspec.structs.replace(ASKED, told_at=NOW, what="rank 1 is at f.py:24")
    assert next_action(None, known, None, NOW + 1, ends=False) == WithdrawReport(reported=True)
    assert next_action(SINCE + 1, known, None, NOW + 1, ends=False) == WithdrawReport(reported=True)  # it spoke, and has fallen quiet again
    assert next_action(None, ASKED, None, NOW + 1, ends=False) == WithdrawReport(reported=False)


@pytest.mark.parametrize("stored", [{}, {"fault_tolerance": None}, {"fault_tolerance": {"hang_seconds": "soon"}}])
def test_a_spec_that_says_nothing_has_the_usual_patience(stored: dict[str, object]) -> None:
    assert (hang_seconds_of(stored), patience_of(stored, 300.0)) == (None, 300.0)
    assert patience_of({"fault_tolerance": {"hang_seconds": 8}}, 300.0) == 8.0
