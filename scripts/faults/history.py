"""What ranks wrote down around a fault, and what that says: outages, steps lost, steps done twice, brains that split. Pure.

The same for every system that is measured: each of its ranks tells when it finished which step, in which membership of the gang.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Commit:
    """Record of one rank having finished one step."""

    member: str  # where it runs: a node's name stays the same while its rank changes
    generation: int  # the membership of the gang; only grows
    rank: int
    step: int
    at: float  # wall clock
    seconds: float  # the step's own time


History = Sequence[Commit]


def generations(history: Iterable[Commit]) -> dict[int, list[Commit]]:
    found: defaultdict[int, list[Commit]] = defaultdict(list)
    for commit in history:
        found[commit.generation].append(commit)
    return dict(sorted(found.items()))


def newest_generation(history: Iterable[Commit]) -> int:
    return max((commit.generation for commit in history), default=0)


def ranks_of(history: Iterable[Commit], generation: int) -> set[int]:
    """Return the ranks that have finished a step in `generation`."""
    return {commit.rank for commit in history if commit.generation == generation}


def finished_at(commits: Iterable[Commit], step: int) -> float:
    """Return when the last rank had finished the step: it is committed once every rank has applied it."""
    return max(commit.at for commit in commits if commit.step == step)


def resumed_at(history: History, generation: int) -> float | None:
    """Return when the first step after `generation` was committed."""
    later = [commit for commit in history if commit.generation > generation]
    if not later:
        return None
    first = min(commit.generation for commit in later)
    commits = [commit for commit in later if commit.generation == first]
    return finished_at(commits, min(commit.step for commit in commits))


def join_outage(history: History, before: int, after: int) -> float:
    """Return how much longer than a median step the running members stood still at worst while membership `before` became `after`."""
    found = {number: commits for number, commits in generations(history).items() if before <= number <= after}
    stops = [_standstill(old, new) for old, new in pairwise(found.values())]
    return max(0.0, *stops) - median_step(history) if stops else 0.0


def _standstill(old: History, new: History) -> float:
    """From the last step of one membership to the first of the next, for those that are in both."""
    stayed = {commit.member for commit in old} & {commit.member for commit in new}
    first = min(commit.step for commit in new if commit.member in stayed)
    last = max(commit.at for commit in old if commit.member in stayed)
    return finished_at([commit for commit in new if commit.member in stayed], first) - last


def steps_redone(history: History) -> int:
    """Steps that survivors had finished in one generation and did again in the next: lost work."""
    return sum(len(done_twice(old, new)) for old, new in pairwise(generations(history).values()))


def done_twice(old: History, new: History) -> set[int]:
    """By members that are in both: the steps that only a dead member had finished are lost with it."""
    first = min(commit.step for commit in new)
    stayed = {commit.member for commit in new if commit.step == first}
    return {commit.step for commit in old if commit.step >= first and commit.member in stayed}


def never_done(history: History) -> set[int]:
    """Holes: steps below the newest one that no rank has finished."""
    done = {commit.step for commit in history}
    return set(range(1, max(done, default=0))) - done


def split_brains(history: History) -> int:
    """Memberships of which a rank finished a step after the next one had finished its first: two gangs at work at once."""
    pairs = pairwise(generations(history).values())
    return sum(max(commit.at for commit in old) > min(commit.at for commit in new) for old, new in pairs)


def median_step(history: History) -> float:
    return statistics.median(commit.seconds for commit in history)


def p99_step(history: History) -> float:
    """Return the 99th percentile of step seconds. The first steps of each generation, which a fault has touched, are left out."""
    usual = sorted(commit.seconds for commits in generations(history).values() for commit in commits if commit.step > _warm(commits))
    return usual[math.ceil(0.99 * len(usual)) - 1] if usual else math.nan


def _warm(commits: Sequence[Commit]) -> int:
    return min(commit.step for commit in commits) + 2
