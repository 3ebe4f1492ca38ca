"""Which fault strikes which rank at which step: a pure function of a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: How often each kind comes, in so many faults.
KINDS: Mapping[str, int] = {"rank_killed": 4, "node_killed": 2, "agent_killed": 1, "rank_stopped": 2, "link_cut": 2, "namespace_killed": 1}
NETWORKED = frozenset({"link_cut", "namespace_killed"})


@dataclass(frozen=True)
class Planned:
    step: int
    rank: int  # the process that is that rank by then
    kind: str


def schedule(seed: int, faults: int, every: int, ranks: int, kinds: Mapping[str, int] = KINDS) -> list[Planned]:
    """Plan one fault in each window of `every` steps, somewhere in its second half; the first window stays quiet. A gang that is not
    whole by then is struck as soon as it is."""
    dice = random.Random(seed)
    drawn = deck(faults, kinds)
    dice.shuffle(drawn)
    return [Planned((number + 1) * every + dice.randrange(every // 2), dice.randrange(ranks), kind) for number, kind in enumerate(drawn)]


def deck(faults: int, kinds: Mapping[str, int]) -> list[str]:
    """Return every kind of fault in its proportion, and at least once where there are faults enough."""
    rounds: list[str] = []
    left = dict(kinds)
    while len(rounds) < faults:
        left = {kind: count - 1 for kind, count in left.items() if count > 1} if rounds else left
        rounds += left or kinds
        left = left or dict(kinds)
    return rounds[:faults]


def possible_kinds(*, networked: bool) -> dict[str, int]:
    return {kind: count for kind, count in KINDS.items() if networked or kind not in NETWORKED}


def last_step(plan: Sequence[Planned], every: int) -> int:
    """Return the step at which the run ends: as long after the last fault as there is between two."""
    return plan[-1].step + every
