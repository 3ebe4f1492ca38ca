"""Who is to blame when nothing fails and nothing moves: from what the ranks say, and what is seen of their processes, to a verdict.

A rank that takes long says so (`training.link.Stalled`); that alone harms nobody. Conclusive is only what comes beside it:

    a process is stopped by a signal while another one waits for it                             it is to blame
    a machine does not answer those who wait                                                    the smaller side is, whoever it is
    two ranks are at different calls under one number                                           the code is: all start over
    a rank is at work, or silent, beyond all patience while others wait for it                  it is
    everyone waits beyond all patience                                                          a connection is broken: everyone goes on

Where nobody waits for anybody a rank is slow and not hung, unless the user has said what counts as hung.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from training.link import GroupCall, Stalled

#: Beyond its limit, a rank whose peers do not answer has waited long enough for their own word. As `training.reporting.watchdog.CONFIRM_SECONDS`.
WORD_SECONDS = 0.3


class Witness(Protocol):
    """What is known of one rank."""

    @property
    def rank(self) -> int: ...
    @property
    def stopped(self) -> bool:
        """Exited, or given up."""

    @property
    def broken(self) -> bool:
        """Has lost its group already, and waits for its next place."""

    @property
    def suspended(self) -> bool:
        """Its process is stopped by a signal."""

    @property
    def stall(self) -> Stalled | None: ...


@dataclass(frozen=True)
class Verdict:
    culprits: tuple[int, ...]  # empty: none of the ranks
    what: str  # culprit, evidence, and what was missed
    repeats: bool = False  # it would come again without the culprits: all start over


def verdict(ranks: Sequence[Witness], *, slow_is_hung: bool) -> Verdict | None:
    """None: nobody is to blame, or not yet. `slow_is_hung`: by the user's word, also where nobody waits."""
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


def _suspended(living: Sequence[Witness], waiting: Mapping[int, Stalled]) -> Verdict | None:
    found = [rank.rank for rank in living if rank.suspended]
    return _against(found, "is stopped by a signal (SIGSTOP, or a debugger)", waiting) if found else None


def _cut_off(living: Sequence[Witness]) -> Verdict | None:
    """Of the sides into which accusations split the ranks the largest goes on; of equal ones that of the lowest rank. As long as accused
    ranks that have not spoken could change that, their word is waited for: they may reach us, if not their accusers."""
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
    """The largest set in which nobody accuses another one, built up from each rank in turn."""
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


def _mismatched(living: Sequence[Witness], waiting: Mapping[int, Stalled]) -> Verdict | None:
    """Ranks that have come to different calls under one number; or, once patience is over, that are in calls of their own and in ours."""
    calls: dict[int, tuple[int, GroupCall]] = {}
    for rank, stall in waiting.items():
        for call in (*stall.recent, stall.waits):
            other, first = calls.setdefault(call.number, (rank, call)) if call and call.number else (rank, call)
            if call != first:
                return Verdict((), f"mismatched calls: {_at(other, first)}, {_at(rank, call)}; {_CODE}", repeats=True)
    own = [rank for rank, stall in waiting.items() if stall.waits and not stall.waits.number]
    if own and len(own) < len(waiting) == len(living) and any(stall.overdue for stall in waiting.values()):
        ours = next(rank for rank in waiting if rank not in own)
        both = ", ".join(_at(rank, waiting[rank].waits) for rank in (own[0], ours))
        return Verdict((), f"mismatched calls: {both}; {_CODE}", repeats=True)
    return None


_CODE = "the ranks' code has taken different branches"


def _stuck(living: Sequence[Witness], waiting: Mapping[int, Stalled]) -> Verdict | None:
    """Whoever others wait for beyond all patience, and who does not wait itself: at work for as long, or not heard of at all."""
    others = [rank for rank in living if rank.rank not in waiting and not rank.broken]
    patient = any(rank.stall is not None and not rank.stall.overdue for rank in others)
    if not others or patient or not any(stall.overdue for stall in waiting.values()):
        return None
    what = "; ".join(_at_work(rank) for rank in others)
    return Verdict(tuple(rank.rank for rank in others), f"{what}; {_missed(waiting)}")


def _all_waiting(living: Sequence[Witness], waiting: Mapping[int, Stalled]) -> Verdict | None:
    if len(waiting) < len(living) or not all(stall.overdue for stall in waiting.values()):
        return None
    return Verdict((), f"every rank waits and none is missing: a connection between them has broken silently; {_missed(waiting)}")


def _all_stuck(living: Sequence[Witness]) -> Verdict | None:
    if not living or not all(rank.stall is not None and rank.stall.overdue for rank in living):
        return None
    return Verdict(tuple(rank.rank for rank in living), "; ".join(_at_work(rank) for rank in living))


def _against(culprits: Sequence[int], how: str, waiting: Mapping[int, Stalled]) -> Verdict:
    others = {rank: stall for rank, stall in waiting.items() if rank not in culprits}
    return Verdict(tuple(culprits), f"{_named(culprits)} {how}; {_missed(others)}")


def _waiting(living: Sequence[Witness]) -> dict[int, Stalled]:
    return {rank.rank: rank.stall for rank in living if rank.stall is not None and rank.stall.waits is not None}


def _at_work(rank: Witness) -> str:
    if rank.stall is None:
        return f"rank {rank.rank} is not heard of"
    where = f" ({rank.stall.where})" if rank.stall.where else ""
    return f"rank {rank.rank} is in {rank.stall.phase}{where} of step {rank.stall.step} for {rank.stall.seconds:.1f} s"


def _missed(waiting: Mapping[int, Stalled]) -> str:
    """The call that the culprits have missed: the earliest one."""
    if not waiting:
        return "nobody else could say more"
    first = min(waiting.values(), key=lambda stall: (stall.step, stall.waits.number if stall.waits else 0))
    usual = f"which usually ends within {first.limit:.1f} s"
    return f"{_named(sorted(waiting))} wait(s) in {first.waits} of step {first.step} for {first.seconds:.1f} s, {usual}"


def _at(rank: int, call: GroupCall | None) -> str:
    return f"rank {rank} is at {call}"


def _named(ranks: Sequence[int]) -> str:
    return f"rank {', '.join(map(str, ranks))}"
