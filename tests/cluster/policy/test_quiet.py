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
from paceline.cluster.stacks import Difference, StackPosition

NOW = 10_000.0
SINCE = NOW - 400.0
ASKED = Suspicion(since=SINCE, asked_at=NOW)
POSITIONS = {0: StackPosition("waits", "all_reduce", "step in f.py:9"), 1: StackPosition("elsewhere", where="f.py:24")}


def look(*, at_work: bool = False, complete: bool = True) -> StackReading:
    return StackReading(Difference("rank 1 is at f.py:24", (1,)), at_work, complete, POSITIONS, "  File")


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
