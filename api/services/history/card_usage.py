"""What a job used: slot-hours, energy, and cards that it holds and leaves idle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.readings import CardUse, JobUsage
from paceline.api.services.history.card_holdings import CardHolding, holding_of, joined
from paceline.api.services.history.slot_hours import are_ranks_kept, slot_hours
from paceline.api.services.nodes.node_metrics import TimeSpan
from paceline.api.services.nodes.reading_totals import HeldSubject, ReadingTotal, read_totals
from paceline.cluster.history.node_readings import KeepReadings, Resolution, resolution
from paceline.db.models.jobs import JobRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import trial_slots
from paceline.monitoring.readings import CARD_METRICS, card

#: A rank that has just taken its card: the first reading of it is still on the way.
FRESH_SECONDS = 30.0
POWER, UTILIZATION = "power_watts", "utilization_percent"
#: A card is idle when it was held for all of this time, read for half of it, and used for less than IDLE_PERCENT: a job that loads its model is no news.
IDLE_SECONDS, LEAST_READINGS, IDLE_PERCENT = 300, 150, 5.0
#: Buckets over the time that a card was held: its energy does not depend on them, only the edges do.
MOST_BUCKETS = 2_000
#: The same, over the time of many jobs that are read at once.
MOST_BUCKETS_OF_JOBS = 4_000


async def of_job(control: AsyncSession, points: AsyncSession, job: JobRow, now: datetime, keep: KeepReadings) -> JobUsage:
    ranks = await job_rows.all_ranks(control, job.id)
    holdings = joined([holding_of(job, *each, now) for each in ranks])
    held = Counter(rank.generation for rank, _, _ in ranks)
    generations = (await trial_slots.generations(control, [job.id])).get(job.id, [])
    until = job.ended_at or now
    power = await _readings(points, holdings, POWER, now, keep)
    current = [each for each in holdings if each.now]
    used = await recent(points, current, now)
    holdings = sorted(holdings, key=lambda each: (each.rank, each.span.first))
    cards = [use_of(each, power.get(each), used.get(each)) for each in holdings]
    return JobUsage(
        job_id=job.id,
        slot_hours=slot_hours(generations, held, until),
        energy_joules=_total_energy(holdings, power) if are_ranks_kept(generations, held, until) else None,
        cards=cards,
    )


async def energy_of_jobs(
    points: AsyncSession, holdings: Mapping[str, Sequence[CardHolding]], now: datetime, keep: KeepReadings
) -> dict[str, float]:
    """The energy of each job by its id, with one read of each node; absent where the power of a card was never read."""
    power = await _readings(points, [each for held in holdings.values() for each in held], POWER, now, keep, MOST_BUCKETS_OF_JOBS)
    found: dict[str, float] = {}
    for job_id, held in holdings.items():
        energy = _total_energy(held, power)
        if energy is not None:
            found[job_id] = energy
    return found


def _total_energy(holdings: Sequence[CardHolding], power: Mapping[CardHolding, ReadingTotal]) -> float | None:
    """The energy of all; None where the power of one was never read: a sum without it would look like the whole. One that has just begun has
    no part in it yet."""
    told = [_energy(each, power.get(each)) for each in holdings if each.seconds > (FRESH_SECONDS if each.now and each not in power else 0)]
    known = [energy for energy in told if energy is not None]
    return sum(known) if told and len(known) == len(told) else None


def _energy(holding: CardHolding, power: ReadingTotal | None) -> float | None:
    return None if power is None else power.sum / power.count * CARD_METRICS[POWER].step * holding.seconds


async def _readings(
    points: AsyncSession, holdings: Sequence[CardHolding], name: str, now: datetime, keep: KeepReadings, most: int = MOST_BUCKETS
) -> dict[CardHolding, ReadingTotal]:
    """All readings of one metric while each card was held."""
    found: dict[CardHolding, ReadingTotal] = {}
    for node_id, held in _by_node(holdings).items():
        span = TimeSpan(min(each.span.first for each in held), max(each.span.last for each in held))
        at = resolution(span.first, span.last, most, now.timestamp(), keep)
        found |= await _totals(points, node_id, at, name, held, span)
    return found


async def recent(points: AsyncSession, holdings: Sequence[CardHolding], now: datetime) -> dict[CardHolding, ReadingTotal]:
    """The utilization of the last minutes, by the second."""
    last = now.timestamp()
    found: dict[CardHolding, ReadingTotal] = {}
    for node_id, held in _by_node(holdings).items():
        span = TimeSpan(max(last - IDLE_SECONDS, min(each.span.first for each in held)), last)
        found |= await _totals(points, node_id, Resolution(1, 1), UTILIZATION, held, span)
    return found


def _by_node(holdings: Sequence[CardHolding]) -> dict[str, list[CardHolding]]:
    nodes: defaultdict[str, list[CardHolding]] = defaultdict(list)
    for each in holdings:
        if each.card is not None:
            nodes[each.node_id].append(each)
    return nodes


async def _totals(
    points: AsyncSession, node_id: str, at: Resolution, name: str, holdings: Sequence[CardHolding], span: TimeSpan
) -> dict[CardHolding, ReadingTotal]:
    """The readings of one metric while each card of a node was held; absent where there are none."""
    held = [HeldSubject(card(each.card), each.span) for each in holdings if each.card is not None]  # `_by_node` has no others
    totals = await read_totals(points, node_id, at, name, held, span)
    return {holding: total for holding, total in zip(holdings, totals, strict=True) if total.count}


def use_of(holding: CardHolding, power: ReadingTotal | None, used: ReadingTotal | None) -> CardUse:
    percent = None if used is None else used.sum / used.count * CARD_METRICS[UTILIZATION].step
    is_known = holding.seconds >= IDLE_SECONDS and used is not None and used.count >= LEAST_READINGS
    return CardUse(
        rank=holding.rank,
        node_id=holding.node_id,
        node_name=holding.node_name,
        card=holding.card,
        held_seconds=holding.seconds,
        measured_ratio=0.0 if power is None or not holding.seconds else min(1.0, power.count / holding.seconds),
        energy_joules=_energy(holding, power),
        utilization_percent=percent,
        idle=is_known and percent is not None and percent < IDLE_PERCENT,
    )
