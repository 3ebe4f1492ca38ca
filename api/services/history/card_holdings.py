"""Which card each rank of a job held, and when."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.nodes.node_metrics import TimeSpan
from paceline.cluster.states import TERMINAL_JOB_STATES, RankState
from paceline.db.models.jobs import GenerationRow, JobRow, RankRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows


@dataclass(frozen=True)
class CardHolding:
    """A slot that a rank held without a break. `card` is the driver's index; None: a CPU slot. `now`: it still holds it."""

    rank: int
    generation: int  # the first
    node_id: str
    node_name: str
    slot: int
    card: int | None
    span: TimeSpan
    now: bool

    @property
    def seconds(self) -> float:
        return max(0.0, self.span.last - self.span.first)


async def of_job(session: AsyncSession, job: JobRow, now: datetime) -> list[CardHolding]:
    """The holdings of a job in the order of generations; those of generations whose ranks are no longer kept are absent."""
    return joined([holding_of(job, *row, now) for row in await job_rows.all_ranks(session, job.id)])


def of_ranks(holdings: Sequence[CardHolding], ranks: Collection[int]) -> list[CardHolding]:
    return [each for each in holdings if each.rank in ranks]


def holding_of(job: JobRow, rank: RankRow, generation: GenerationRow, node: NodeRow, now: datetime) -> CardHolding:
    """The holding of a rank in one generation."""
    ended = generation.ended_at or (job.ended_at if job.state in TERMINAL_JOB_STATES else None)
    span = TimeSpan(generation.started_at.timestamp(), (ended or now).timestamp())
    holds = ended is None and rank.state not in (RankState.EXITED, RankState.MOVED, RankState.LOST)
    return CardHolding(rank.rank, rank.generation, node.id, node.name, rank.slot, rank.card, span, holds)


def joined(holdings: Sequence[CardHolding]) -> list[CardHolding]:
    """The holdings, one for as long as a rank keeps its slot, and the slot its card, from one generation to the next without a break."""
    found: list[CardHolding] = []
    newest: dict[int, int] = {}  # rank -> its last holding
    for each in holdings:
        at = newest.get(each.rank)
        before = None if at is None else found[at]
        if at is not None and before is not None and _goes_on(before, each):
            found[at] = replace(before, span=TimeSpan(before.span.first, each.span.last), now=each.now)
        else:
            newest[each.rank] = len(found)
            found.append(each)
    return found


def _goes_on(before: CardHolding, each: CardHolding) -> bool:
    """Whether it is the same card, and was not free meanwhile, as it is while a job is paused: other jobs may have held it."""
    same = (before.node_id, before.slot, before.card) == (each.node_id, each.slot, each.card)
    return same and each.span.first <= before.span.last
