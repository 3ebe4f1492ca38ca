"""The rows that a new generation is made of. Nothing here writes them: `gang_lifecycle` does."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

from paceline.api.services.lifecycle import rank_lifecycle
from paceline.cluster.policy.placement import NodeShare
from paceline.cluster.states import RankState
from paceline.db.models.checkpoints import CheckpointRow
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow

#: A parked rank in one of these has a process, which goes along to the next generation.
_GOES_ALONG = frozenset({RankState.STARTING, RankState.PARKED})


def placed_generation(job: JobRow, source: CheckpointRow | None, now: datetime, *, world_size: int) -> GenerationRow:
    generation = living_generation(job, now, world_size=world_size, start_step=source.step if source else 0)
    generation.restored_checkpoint_id = source.id if source else None
    return generation


def living_generation(job: JobRow, now: datetime, *, world_size: int, start_step: int, at_boundary: bool = False) -> GenerationRow:
    return GenerationRow(
        job_id=job.id,
        generation=job.generation,
        world_size=world_size,
        started_at=now,
        start_step=start_step,
        store_token=secrets.token_urlsafe(24),
        at_boundary=at_boundary,
    )


def placed_ranks(job: JobRow, shares: Sequence[NodeShare], now: datetime) -> list[RankRow]:
    """Rows for the ranks of a placement. Ranks count through the nodes in node-rank order, and through the slots of each."""
    places = [
        (node_rank, local_rank, share.node_id, slot)
        for node_rank, share in enumerate(shares)
        for local_rank, slot in enumerate(share.slots)
    ]
    return [
        RankRow(
            job_id=job.id,
            generation=job.generation,
            rank=rank,
            node_id=node_id,
            slot=slot,
            local_rank=local_rank,
            node_rank=node_rank,
            updated_at=now,
        )
        for rank, (node_rank, local_rank, node_id, slot) in enumerate(places)
    ]


def parked_ranks(job: JobRow, gang: Sequence[RankRow], shares: Sequence[NodeShare], now: datetime) -> list[RankRow]:
    """Rows for new parked ranks, numbered after the present ones."""
    first = max(rank.rank for rank in gang) + 1
    nodes = list(dict.fromkeys([*(rank.node_id for rank in gang), *(share.node_id for share in shares)]))
    places = [(share.node_id, slot) for share in shares for slot in share.slots]
    return [
        RankRow(
            job_id=job.id,
            generation=job.generation,
            rank=first + number,
            node_id=node_id,
            slot=slot,
            local_rank=0,
            node_rank=nodes.index(node_id),
            parked=True,
            updated_at=now,
        )
        for number, (node_id, slot) in enumerate(places)
    ]


def still_parked(ranks: Sequence[RankRow], joining: Sequence[RankRow]) -> list[RankRow]:
    """Rows for the parked ranks that go along. One that was not yet reported as started is requested anew: there is no process to go by."""
    return [rank for rank in ranks if rank.parked and rank not in joining and rank.state in _GOES_ALONG]


def successors(members: Sequence[RankRow], replaced: Sequence[RankRow], parked: Sequence[RankRow], now: datetime) -> list[RankRow]:
    """Rows for the same processes in the same slots, numbered anew; in the slots of `replaced`, which have ended, for new ones. The
    leader still leads, if its place is the first one."""
    everyone = [*members, *replaced, *parked]
    nodes, places = list(dict.fromkeys(rank.node_id for rank in everyone)), len(members) + len(replaced)
    return [
        RankRow(
            job_id=rank.job_id,
            generation=rank.generation + 1,
            rank=number,
            node_id=rank.node_id,
            slot=rank.slot,
            local_rank=sum(other.node_id == rank.node_id for other in everyone[:number]),
            node_rank=nodes.index(rank.node_id),
            parked=number >= places,
            newcomer=number < places and (rank in replaced or rank.parked or (rank.newcomer and rank.state is not RankState.RUNNING)),
            state=rank_lifecycle.first_state(rank, parked=number >= places),
            updated_at=now,
            **({} if rank in replaced else _process_of(rank)),
        )
        for number, rank in enumerate(everyone)
    ]


def _process_of(rank: RankRow) -> dict[str, int | None]:
    """The columns that go along with a process."""
    return {
        "born_generation": rank.generation if rank.born_generation is None else rank.born_generation,
        "born_rank": rank.rank if rank.born_rank is None else rank.born_rank,
        "step": rank.step,
        "card": rank.card,
    }
