"""Finds the culprit when no rank fails and none moves: from the reports of ranks, and the observations of their processes, to a verdict.

A rank that takes long reports it (`training.link.Stalled`); that alone is harmless. Conclusive is only what comes beside it:

    a process is stopped by a signal while another one waits for it                             it is the culprit
    a machine does not answer the ranks that wait for it                                        the smaller side is the culprit
    two ranks are at different calls under one number                                           the code is: all start over
    a rank is at work, or silent, beyond all patience while others wait for it                  it is the culprit
    all ranks wait beyond all patience                                                          a connection is broken: all go on

Where no rank waits for another one a rank is slow and not hung, unless the user has said what counts as hung.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline.cluster.policy.rank_numbers import listed
from paceline.training.link import GroupCall, Stalled

#: Beyond its limit, a rank whose peers do not answer has waited long enough for their own word. As `training.watchdog.watchdog.CONFIRM_SECONDS`.
WORD_SECONDS = 0.3


class HangReport(Protocol):
    """The facts about one rank of a job that does not move."""

    @property
    def rank(self) -> int: ...
    @property
    def stopped(self) -> bool:
        """Whether the rank has exited, or was given up."""

    @property
    def broken(self) -> bool:
        """Whether the rank has lost its group already, and waits for its next place."""

    @property
    def suspended(self) -> bool:
        """Whether the rank's process is stopped by a signal."""

    @property
    def stall(self) -> Stalled | None: ...


@dataclass(frozen=True)
class HangVerdict:
    culprits: tuple[int, ...]  # empty: none of the ranks
    what: str  # culprit, evidence, and what was missed
    repeats: bool = False  # it would come again without the culprits: all start over


def verdict(ranks: Sequence[HangReport], *, slow_is_hung: bool) -> HangVerdict | None:
    """The verdict on a job that does not move; None: no culprit, or not yet. `slow_is_hung`: by the user's choice, also where no rank
    waits."""
    living = [rank for rank in ranks if not rank.stopped]
    waiting = _waiting(living)
    if not waiting:
        return _all_stuck(living) if slow_is_hung else None
    return (
        _suspended(living, waiting)
        or _cut_off(living)
        or _mismatched(living, waiting)
        or _stuck(living, waiting)
        or _all_waiting(living, waiting)
    )


def _suspended(living: Sequence[HangReport], waiting: Mapping[int, Stalled]) -> HangVerdict | None:
    found = [rank.rank for rank in living if rank.suspended]
    return _against(found, "is stopped by a signal (SIGSTOP, or a debugger)", waiting) if found else None


def _cut_off(living: Sequence[HangReport]) -> HangVerdict | None:
    """The ranks that are cut off. Of the sides into which accusations split the ranks the largest goes on; of equal ones that of the
    lowest rank. As long as accused ranks without a report could change that, their reports are waited for: they may reach the
    coordinator, if not their accusers."""
    accusations = [(rank.rank, other) for rank in living if rank.stall is not None for other in rank.stall.unanswered]
    ranks = {rank.rank for rank in living}
    spoken = {rank.rank for rank in living if rank.stall is not None or rank.broken}
    unheard = {other for _, other in accusations} & ranks - spoken
    waited = any(_has_waited(rank.stall) for rank in living if rank.stall is not None and rank.stall.unanswered)
    best = _largest_side(ranks - unheard if waited else ranks, accusations)
    if not accusations or not best or (unheard and not waited and (best & unheard or 2 * len(best) <= len(ranks))):
        return None
    culprits = ranks - best
    accusers = sorted({one for pair in accusations for one, other in (pair, pair[::-1]) if one in best and other in culprits})
    how = f"cannot be reached: from {_named(accusers)} its machine gives no answer"
    return _against(sorted(culprits), how, _waiting(living)) if culprits else None


def _has_waited(stall: Stalled) -> bool:
    return stall.seconds >= stall.limit + WORD_SECONDS


def _largest_side(ranks: Collection[int], accusations: Collection[tuple[int, int]]) -> set[int]:
    """The largest set in which no rank accuses another, built up from each rank in turn."""
    apart: defaultdict[int, set[int]] = defaultdict(set)
    for one, other in accusations:
        apart[one].add(other)
        apart[other].add(one)
    sides = [_side_of(rank, sorted(ranks), apart) for rank in sorted(ranks)]
    return max(sides, key=lambda side: (len(side), -min(side)), default=set())


def _side_of(first: int, ranks: Sequence[int], apart: Mapping[int, set[int]]) -> set[int]:
    side = {first}
    for rank in ranks:
        if side.isdisjoint(apart.get(rank, ())):
            side.add(rank)
    return side


def _mismatched(living: Sequence[HangReport], waiting: Mapping[int, Stalled]) -> HangVerdict | None:
    return _different_calls(waiting) or _own_call_beside_ours(living, waiting)


def _different_calls(waiting: Mapping[int, Stalled]) -> HangVerdict | None:
    """Ranks that have come to different calls under one number."""
    calls: dict[int, tuple[int, GroupCall]] = {}
    for rank, stall in waiting.items():
        for call in (*stall.recent, stall.waits):
            if call is None or not call.number:
                continue
            other, first = calls.setdefault(call.number, (rank, call))
            if call != first:
                return HangVerdict((), f"mismatched calls: {_at(other, first)}, {_at(rank, call)}; {_CODE}", repeats=True)
    return None


def _own_call_beside_ours(living: Sequence[HangReport], waiting: Mapping[int, Stalled]) -> HangVerdict | None:
    """Ranks of which, once patience is over, some are in calls of their own code and some in ours."""
    own = [rank for rank, stall in waiting.items() if stall.waits and not stall.waits.number]
    if own and len(own) < len(waiting) == len(living) and any(stall.overdue for stall in waiting.values()):
        ours = next(rank for rank in waiting if rank not in own)
        both = ", ".join(_at(rank, waiting[rank].waits) for rank in (own[0], ours))
        return HangVerdict((), f"mismatched calls: {both}; {_CODE}", repeats=True)
    return None


_CODE = "the ranks' code has taken different branches"


def _stuck(living: Sequence[HangReport], waiting: Mapping[int, Stalled]) -> HangVerdict | None:
    """Ranks that others wait for beyond all patience, and that do not wait themselves: at work for as long, or without any report."""
    others = [rank for rank in living if rank.rank not in waiting and not rank.broken]
    patient = any(rank.stall is not None and not rank.stall.overdue for rank in others)
    if not others or patient or not any(stall.overdue for stall in waiting.values()):
        return None
    what = "; ".join(_at_work(rank) for rank in others)
    return HangVerdict(tuple(rank.rank for rank in others), f"{what}; {_missed(waiting)}")


def _all_waiting(living: Sequence[HangReport], waiting: Mapping[int, Stalled]) -> HangVerdict | None:
    if len(waiting) < len(living) or not all(stall.overdue for stall in waiting.values()):
        return None
    return HangVerdict((), f"every rank waits and none is missing: a connection between them has broken silently; {_missed(waiting)}")


def _all_stuck(living: Sequence[HangReport]) -> HangVerdict | None:
    if not living or not all(rank.stall is not None and rank.stall.overdue for rank in living):
        return None
    return HangVerdict(tuple(rank.rank for rank in living), "; ".join(_at_work(rank) for rank in living))


def _against(culprits: Sequence[int], how: str, waiting: Mapping[int, Stalled]) -> HangVerdict:
    others = {rank: stall for rank, stall in waiting.items() if rank not in culprits}
    return HangVerdict(tuple(culprits), f"{_named(culprits)} {how}; {_missed(others)}")


def _waiting(living: Sequence[HangReport]) -> dict[int, Stalled]:
    return {rank.rank: rank.stall for rank in living if rank.stall is not None and rank.stall.waits is not None}


def _at_work(rank: HangReport) -> str:
    if rank.stall is None:
        return f"rank {rank.rank} is not heard of"
    where = f" ({rank.stall.where})" if rank.stall.where else ""
    return f"rank {rank.rank} is in {rank.stall.phase}{where} of step {rank.stall.step} for {rank.stall.seconds:.1f} s"


def _missed(waiting: Mapping[int, Stalled]) -> str:
    """The call that the culprits have missed: the earliest one."""
    if not waiting:
        return "no other rank could report more"
    first = min(waiting.values(), key=lambda stall: (stall.step, stall.waits.number if stall.waits else 0))
    usual = f"which usually ends within {first.limit:.1f} s"
    return f"{_named(sorted(waiting))} wait(s) in {first.waits} of step {first.step} for {first.seconds:.1f} s, {usual}"


def _at(rank: int, call: GroupCall | None) -> str:
    return f"rank {rank} is at {call}"


def _named(ranks: Sequence[int]) -> str:
    return f"rank {listed(ranks)}"
