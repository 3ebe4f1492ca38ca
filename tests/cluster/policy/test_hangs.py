"""What is known of ranks that do not get on -> who is to blame, and in what words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from paceline.cluster.policy.decide import decide
from paceline.cluster.policy.decisions import Regroup, Restart
from paceline.cluster.policy.hangs import WORD_SECONDS, verdict
from paceline.cluster.states import EndReason, JobState, RankState
from paceline.training.link import GroupCall, Stalled
from tests.cluster.policy.test_decide import NOW, job
from tests.cluster.policy.test_decide import rank as rank_view

LIMIT, PATIENCE = 0.6, 31.0
CALL = GroupCall(57, "sum of float64[8]")


def stalled(seconds: float = 0.7, *, unanswered: tuple[int, ...] = (), waits: GroupCall | None = CALL, **known: Any) -> Stalled:
    fields: dict[str, Any] = {"step": 12, "phase": "exchange", "limit": LIMIT, "patience": PATIENCE, "since": 1.0}
    return Stalled(seconds=seconds, unanswered=unanswered, waits=waits, **fields | known)


@dataclass(frozen=True)
class Rank:
    rank: int
    stall: Stalled | None = None
    suspended: bool = False
    stopped: bool = False
    broken: bool = False


def waiting(rank: int, seconds: float = 0.7, **known: Any) -> Rank:
    return Rank(rank, stalled(seconds, **known))


def working(rank: int, seconds: float = 0.7, phase: str = "forward", **known: Any) -> Rank:
    return Rank(rank, stalled(seconds, waits=None, phase=phase, **known))


def cut(rank: int, *others: int, seconds: float = 0.7) -> Rank:
    return waiting(rank, seconds, unanswered=others)


SURE = LIMIT + WORD_SECONDS
LATE = PATIENCE + 1
STOPPED = Rank(1, suspended=True)
OWN = GroupCall(0, "torch.distributed.broadcast of its own at loss in task.py:9")
EARLIER = (GroupCall(55, "exchange"), GroupCall(56, "exchange"), CALL)


@pytest.mark.parametrize(
    ("ranks", "culprits", "words"),
    [
        ([waiting(0), STOPPED, waiting(2)], (1,), "rank 1 is stopped by a signal"),
        ([waiting(0), STOPPED, Rank(2)], (1,), "rank 0 wait(s) in call 57 (sum of float64[8]) of step 12"),
        ([waiting(0), STOPPED, working(2)], (1,), "rank 1 is stopped"),
        # a machine that does not answer
        ([cut(0, 2), cut(1, 2), Rank(2)], (2,), "rank 2 cannot be reached: from rank 0, 1 its machine gives no answer"),
        ([cut(0, 2), Rank(1), Rank(2)], (2,), "from rank 0"),  # the other one is about to say so too
        ([cut(0, 1, seconds=SURE), Rank(1)], (1,), "cannot be reached"),
        ([Rank(0), cut(1, 0, seconds=SURE)], (0,), "cannot be reached"),
        ([cut(0, 1), cut(1, 0)], (1,), "from rank 0"),  # both reach us: rank 0's side
        ([cut(0, 1, 2), cut(1, 0), cut(2, 0)], (0,), "from rank 1, 2"),  # the larger side
        ([cut(0, 1, 2, seconds=SURE), Rank(1), Rank(2)], (1, 2), "from rank 0"),  # ... unless nobody hears of it
        ([cut(0, 2, 3), cut(1, 2, 3), cut(2, 0, 1), cut(3, 0, 1)], (2, 3), "from rank 0, 1"),
        ([cut(0, 2), waiting(1), waiting(2)], (2,), "from rank 0"),  # one pair alone: either of them
        # beyond all patience
        (
            [waiting(0, LATE), working(1, LATE, where="loss in task.py:7")],
            (1,),
            "rank 1 is in forward (loss in task.py:7) of step 12 for 32",
        ),
        ([waiting(0, LATE), Rank(1), waiting(2, LATE)], (1,), "rank 1 is not heard of"),
        ([waiting(0, LATE), waiting(1, LATE)], (), "a connection between them has broken silently"),
        ([waiting(0, LATE), waiting(1, LATE, waits=GroupCall(58, "exchange"))], (), "broken silently"),
        ([waiting(0, LATE), Rank(1, broken=True), Rank(2)], (2,), "rank 2 is not heard of"),
    ],
)
def test_who_is_to_blame(ranks: list[Rank], culprits: tuple[int, ...], words: str) -> None:
    found = verdict(ranks, slow_is_hung=False)
    assert found is not None
    assert (found.culprits, found.repeats) == (culprits, False)
    assert words in found.what


@pytest.mark.parametrize(
    "ranks",
    [
        [waiting(0, recent=EARLIER), waiting(1, recent=(*EARLIER[:2], GroupCall(57, "gather of int64[1]")))],
        [waiting(0, LATE), waiting(1, LATE, waits=OWN)],
    ],
)
def test_ranks_in_different_calls_are_both_named_and_all_start_over(ranks: list[Rank]) -> None:
    found = verdict(ranks, slow_is_hung=False)
    assert found is not None
    assert (found.culprits, found.repeats) == ((), True)
    assert "rank 0 is at call 57 (sum of float64[8])" in found.what
    assert "rank 1 is at" in found.what


@pytest.mark.parametrize(
    "ranks",
    [
        [Rank(0), Rank(1)],
        [Rank(0), STOPPED],  # nobody misses it yet
        [working(0), STOPPED],
        [waiting(0), Rank(1)],  # long, and no more than that
        [waiting(0), working(1)],
        [waiting(0, LATE), working(1)],  # it began later: it has time
        [waiting(0), waiting(1)],
        [waiting(0, LATE), waiting(1)],
        [waiting(0), waiting(1, waits=OWN)],
        [waiting(0, recent=EARLIER), waiting(1, recent=EARLIER[:2], waits=EARLIER[1])],  # one is ahead of the other
        [cut(0, 1), Rank(1)],  # its own word may be on its way
        [cut(0, 1, 2), Rank(1), Rank(2)],
        [cut(0, 1, 2), cut(1, 0), Rank(2)],
        [working(0, LATE), working(1, LATE)],  # nobody waits: they are slow
        [working(0, LATE)],
        [Rank(0), Rank(1, suspended=True, stopped=True)],
        [],
    ],
)
def test_there_is_no_culprit_or_not_yet(ranks: list[Rank]) -> None:
    assert verdict(ranks, slow_is_hung=False) is None


def test_the_users_limit_also_binds_where_no_rank_waits() -> None:
    found = verdict([working(0, LATE, where="loss in task.py:7")], slow_is_hung=True)
    assert found is not None
    assert found.culprits == (0,)
    assert verdict([working(0, LATE), working(1)], slow_is_hung=True) is None
    assert verdict([Rank(0)], slow_is_hung=True) is None


def gang(*ranks: Any, least: int | None = 1, **known: Any) -> Any:
    return job(JobState.RUNNING, *ranks, min_ranks=least, **known)


def seen(number: int, **known: Any) -> Any:
    return rank_view(number, RankState.RUNNING, **known)


WAITS = stalled()


def test_a_job_that_closes_up_goes_on_without_the_culprit() -> None:
    decision = decide(gang(seen(0, stall=WAITS), seen(1, suspended=True), seen(2, stall=WAITS)), NOW)
    assert isinstance(decision, Regroup)
    assert (decision.reason, decision.members.survivors, decision.culprits) == (EndReason.HANG, (0, 2), (1,))
    assert "call 57" in decision.why


def test_a_job_that_restarts_does_so_as_a_whole() -> None:
    decision = decide(gang(seen(0, stall=WAITS), seen(1, suspended=True), least=None), NOW)
    assert isinstance(decision, Restart)
    assert (decision.reason, decision.counts_as_restart, decision.culprits) == (EndReason.HANG, True, (1,))


def test_mismatched_calls_would_come_again_on_fewer_ranks() -> None:
    late = stalled(LATE)
    decision = decide(gang(seen(0, stall=late), seen(1, stall=stalled(LATE, waits=OWN))), NOW)
    assert isinstance(decision, Restart)
    assert decision.counts_as_restart


def test_after_a_silent_break_everyone_goes_on() -> None:
    late = stalled(LATE)
    decision = decide(gang(seen(0, stall=late), seen(1, stall=late)), NOW)
    assert isinstance(decision, Regroup)
    assert (decision.members.survivors, decision.culprits) == ((0, 1), ())


def test_in_a_pause_the_others_close_up_and_save() -> None:
    decision = decide(job(JobState.STOPPING, seen(0, stall=WAITS), seen(1, suspended=True), end_reason=EndReason.PAUSED, min_ranks=1), NOW)
    assert isinstance(decision, Regroup)
    assert (decision.reason, decision.members.survivors) == (EndReason.HANG, (0,))


def test_where_they_cannot_the_hang_ends_in_the_pause() -> None:
    decision = decide(job(JobState.STOPPING, seen(0, stall=WAITS), seen(1, suspended=True), end_reason=EndReason.PAUSED), NOW)
    assert decision is not None
    assert (decision.to, decision.reason, decision.counts_as_restart) == (JobState.STOPPING, EndReason.PAUSED, True)
    assert "rank 1 is stopped" in decision.why
