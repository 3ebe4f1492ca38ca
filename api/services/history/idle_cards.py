"""The cards of the whole cluster that jobs hold and leave idle, by the rule of a job's own page (`card_usage`).

A card that is in use by its newest sample is not looked up: so few nodes are read, however many there are.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.readings import IdleCard, IdleCards
from paceline.api.services.history import card_usage
from paceline.api.services.history.card_holdings import CardHolding, holding_of
from paceline.api.services.history.card_usage import IDLE_PERCENT
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import slots as slot_rows


async def of_cluster(control: AsyncSession, points: AsyncSession, now: datetime) -> IdleCards:
    jobs: dict[CardHolding, tuple[str, str]] = {}
    for rank, generation, node, job in await slot_rows.card_holders(control):
        holding = holding_of(job, rank, generation, node, now)
        if holding.now and _seems_idle(node, rank.card):
            jobs[holding] = (job.id, job.name)
    used = await card_usage.recent(points, list(jobs), now)
    found = [(jobs[holding], card_usage.use_of(holding, None, used.get(holding))) for holding in jobs]
    idle = [
        IdleCard(
            job_id=job_id,
            job_name=name,
            rank=each.rank,
            node_id=each.node_id,
            node_name=each.node_name,
            card=each.card,
            utilization_percent=each.utilization_percent,
        )
        for (job_id, name), each in found
        if each.idle and each.card is not None and each.utilization_percent is not None
    ]
    return IdleCards(cards=sorted(idle, key=lambda each: (each.job_name, each.job_id, each.rank)))


def _seems_idle(node: NodeRow, card: int | None) -> bool:
    """Whether the card was not in use when its node told of it last."""
    samples = (node.last_sample or {}).get("gpus", [])
    used = next((sample.get("utilization_percent") for sample in samples if sample.get("index") == card), None)
    return used is not None and used < IDLE_PERCENT
