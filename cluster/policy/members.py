"""The members of the next generation after a fault, and whether they have all of the state between them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paceline.cluster.policy.decisions import Members
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import RankState
from paceline.parallelism.plan import Coordinates, StateShard, state_shards


def regroup(view: JobView, survivors: Sequence[RankView], joining: Sequence[RankView], ended: Sequence[RankView] = ()) -> Members | None:
    """The largest world that the job's plan fits, of `min_ranks` or more; None: there is none. A rank that holds a part of the state
    keeps it as far as the new world needs it."""
    assert view.min_ranks is not None
    joining = joining[: max(0, view.size - len(survivors))]
    ended = ended[: max(0, view.size - len(survivors) - len(joining))]
    size = view.plan.largest(len(survivors) + len(joining) + len(ended), view.min_ranks)
    if not size:
        return None
    wanted = state_shards(view.plan.degrees(size))
    seated, others = match_holders(holders(view, survivors), wanted)
    staying = [*(rank for rank, _ in seated), *others]
    joined = joining[: max(0, size - len(staying))]
    return Members(
        survivors=tuple(staying[:size]),
        joining=_numbers(joined),
        replaced=_numbers(ended[: max(0, size - len(staying) - len(joined))]),
        parking=tuple(staying[size:]),
        whole={part for _, part in seated} == set(wanted),
    )


def members_alone(view: JobView, survivors: Sequence[RankView]) -> Members | None:
    """The members without the ranks that were to join them, where they have all of the state between them; None: they have not. The living
    newcomers are parked, and join when the gang grows again."""
    alone = regroup(view, [rank for rank in survivors if not rank.newcomer], ())
    if alone is None or not alone.whole:
        return None
    return replace(alone, parking=(*alone.parking, *_numbers([rank for rank in survivors if rank.newcomer])))


def holders(view: JobView, survivors: Sequence[RankView]) -> list[tuple[int, StateShard]]:
    """(rank, the state shard that it holds), those of whole replicas first: they come from the same step, and are neighbours."""
    size = _divided_among(view)
    degrees = view.plan.degrees(size)
    before = {rank.rank: Coordinates(degrees, rank.rank) for rank in view.ranks if rank.rank < size}
    alive = {rank.rank for rank in survivors}
    torn = {place.along("replicate") for rank, place in before.items() if rank not in alive}
    found = [(rank.rank, () if rank.newcomer else before[rank.rank].state_shard) for rank in survivors]
    return sorted(found, key=lambda each: (each[0] in before and before[each[0]].along("replicate") in torn, each[0]))


def _divided_among(view: JobView) -> int:
    """How many ranks the state is divided among. Where nobody leaves and others are to come, the members keep their numbers, and also their parts
    until they have joined."""
    stayers = sum(not rank.newcomer for rank in view.ranks)
    have_joined = any(rank.state is RankState.RUNNING for rank in view.ranks)
    return stayers if stayers == view.size_before and not have_joined else len(view.ranks)


def match_holders(held: Sequence[tuple[int, StateShard]], wanted: Sequence[StateShard]) -> tuple[list[tuple[int, StateShard]], list[int]]:
    """((rank, shard) for each of the `wanted` state shards that a rank holds, in this order; the other ranks)."""
    waiting = list(held)
    seated: list[tuple[int, StateShard]] = []
    for part in wanted:
        holder = next((each for each in waiting if each[1] == part), None)
        if holder is not None:
            waiting.remove(holder)
            seated.append(holder)
    return seated, [rank for rank, _ in waiting]


def _numbers(ranks: Sequence[RankView]) -> tuple[int, ...]:
    return tuple(rank.rank for rank in ranks)
