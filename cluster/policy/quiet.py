"""Whether a script hangs: from its silence and its ranks' stacks to a notice, or to an end where its user has said what counts as hung.
Pure.

A rank is *quiet* that has had no output and no step for its patience; its agent reports that. A job in which one rank still has output
does not hang: in most scripts only rank 0 prints anything. Once all ranks are quiet, their stacks are asked for:

    fault_tolerance.hang_seconds is given       it hangs by its user's definition, whatever the ranks do
    every rank computes                         a long epoch, perhaps: reported only after BUSY_SECONDS
    ... and one stays at its line, reading      it waits in native code, as of `loss.item()` for NCCL, which keeps a core and a card at 100 %:
        after reading, while another is           no epoch. The rank that moves differs, else the one whose card is idle
        elsewhere
    anything else, at two readings              it seems to hang: reported, and left as it is

CPU time alone decides nothing: a rank that waits may poll (gloo) or spin (NCCL), and an endless loop is busy too. Ranks that all stay at one line
may wait for their cards at each step, which is an epoch. Output or a step of any rank withdraws the report.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paceline.cluster.policy.hangs import HangVerdict
from paceline.cluster.stacks import Difference, StackPosition, told_apart

#: How long a script may be quiet where neither its spec nor the agent's owner says.
PATIENCE_SECONDS = 300.0
#: How long ranks that are busy may be.
BUSY_SECONDS = 3600.0
#: Stacks are compared with what is there by then.
ANSWER_SECONDS = 15.0
#: Between the two looks before a notice, and between looks at a job whose ranks compute.
CONFIRM_SECONDS = 10.0
LOOK_AGAIN_SECONDS = 60.0
#: Looks in a row after which a rank that was found where it was before, and another one elsewhere each time, is not at work.
APART_LOOKS = 3
#: Ranks whose places are remembered and told one by one.
MOST_PLACES = 64


class Suspicion(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a generation that may hang. Times are in seconds since the epoch, by the coordinator's clock; `since` by the
    agents'."""

    since: float  # the last output or step of any rank
    asked_at: float  # for the newest stacks
    looks: int = 0  # at which it seemed to hang
    told_at: float | None = None
    ends: bool = False  # by its user's word
    what: str = ""  # what the ranks do, and which one differs
    ranks: tuple[int, ...] = ()  # those that differ
    places: dict[str, str] = {}  # by rank, in words
    where: dict[str, str] = {}  # by rank, the line that those are at which differ
    stack: str = ""  # of the first that differs
    apart: dict[str, int] = {}  # by rank, looks in a row at which it was where it was before, and another rank elsewhere

    @property
    def open(self) -> bool:
        """Whether the newest stacks have not been read."""
        return self.what == ""


@dataclass(frozen=True)
class StackReading:
    """The content of the newest stacks. `complete`: every rank has answered."""

    difference: Difference
    at_work: bool
    complete: bool
    positions: Mapping[int, StackPosition]
    stacks: Mapping[int, str] = field(default_factory=dict)  # in words, by rank
    idle_cards: Collection[int] = ()  # ranks whose card does nothing


@dataclass(frozen=True)
class RequestStacks:
    """Ask for the stacks of all ranks."""

    suspicion: Suspicion


@dataclass(frozen=True)
class KeepReading:
    """Keep the reading; nothing is reported."""

    suspicion: Suspicion


@dataclass(frozen=True)
class ReportHang:
    suspicion: Suspicion


@dataclass(frozen=True)
class WithdrawReport:
    """Forget the suspicion. `reported`: it was reported before."""

    reported: bool


QuietAction = RequestStacks | KeepReading | ReportHang | WithdrawReport


def next_action(since: float | None, known: Suspicion | None, look: StackReading | None, now: float, *, ends: bool) -> QuietAction | None:
    """The next action about a generation that may hang. `since`: the last output or step of any rank, None while not all ranks are quiet.
    `look`: the stacks that `known` has asked for. `ends`: the user has said what counts as hung."""
    if since is None or (known is not None and since > known.since):
        return None if known is None else WithdrawReport(known.told_at is not None)
    if known is None:
        return RequestStacks(Suspicion(since=since, asked_at=now))
    if known.told_at is not None:
        return None
    if known.open:
        awaited = look is None or not (look.complete or now - known.asked_at >= ANSWER_SECONDS)
        return None if look is None or awaited else _judge(known, look, now, ends=ends)
    patience = CONFIRM_SECONDS if known.looks else LOOK_AGAIN_SECONDS
    if now - known.asked_at < patience:
        return None
    return RequestStacks(msgspec.structs.replace(known, asked_at=now, what=""))


def _judge(known: Suspicion, look: StackReading, now: float, *, ends: bool) -> QuietAction:
    positions = look.positions
    places = {str(rank): positions[rank].described(several=False) for rank in sorted(positions)[:MOST_PLACES]}
    apart = _apart(known, places)
    waiting = [int(rank) for rank, looks in apart.items() if looks >= APART_LOOKS]
    difference = _difference(look, waiting) if look.at_work and waiting else look.difference
    seen = msgspec.structs.replace(
        known,
        what=difference.what,
        ranks=difference.ranks,
        ends=ends,
        places=places,
        where={str(rank): positions[rank].where for rank in difference.ranks[:MOST_PLACES]},
        stack=look.stacks.get(difference.ranks[0], "") if difference.ranks else "",
        apart=apart,
    )
    at_work = look.at_work and not waiting
    if ends or (at_work and now - known.since >= BUSY_SECONDS):
        return ReportHang(msgspec.structs.replace(seen, told_at=now))
    if at_work:
        return KeepReading(msgspec.structs.replace(seen, looks=0))
    if known.looks == 0:
        return KeepReading(msgspec.structs.replace(seen, looks=1))
    return ReportHang(msgspec.structs.replace(seen, told_at=now))


def _apart(known: Suspicion, places: Mapping[str, str]) -> dict[str, int]:
    several = len(set(places.values())) > 1
    return {rank: known.apart.get(rank, 0) + 1 if several and known.places.get(rank) == place else 0 for rank, place in places.items()}


def _difference(look: StackReading, waiting: Collection[int]) -> Difference:
    """The difference between busy ranks of which some, `waiting`, do not get on: the others, which move, or those whose card is idle. Of two sides
    the smaller one; as the stacks alone tell it where there is but one."""
    for one in (frozenset(waiting), frozenset(look.idle_cards)):
        other = frozenset(look.positions) - one
        if one and other:
            differs = one if one == frozenset(look.idle_cards) or len(one) < len(other) else other
            return told_apart(look.positions, differs)
    return look.difference


def described(suspicion: Suspicion, now: float) -> str:
    """The suspicion in words."""
    return f"no output and no step of any rank for {duration(now - suspicion.since)}: {suspicion.what}"


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def verdict(suspicion: Suspicion | None) -> HangVerdict | None:
    """The verdict that ends a job whose user has said how long it may be quiet."""
    if suspicion is None or not suspicion.ends or suspicion.told_at is None:
        return None
    return HangVerdict(suspicion.ranks, f"hung: {described(suspicion, suspicion.told_at)}")


def patience_of(stored: Mapping[str, Any], usual: float) -> float:
    """How many seconds the ranks of a script may be quiet. `stored`: its spec as it was submitted. `usual`: the default where the spec
    gives none."""
    return hang_seconds_of(stored) or usual


def hang_seconds_of(stored: Mapping[str, Any]) -> float | None:
    given = stored.get("fault_tolerance")
    seconds = given.get("hang_seconds") if isinstance(given, Mapping) else None
    return float(seconds) if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0 else None
