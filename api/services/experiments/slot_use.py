"""The slots that trials held: how long, on how many machines, for how much useful work and with how much energy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.history import card_usage, slot_hours
from paceline.api.services.history.card_holdings import CardHolding, joined
from paceline.api.services.nodes.node_metrics import TimeSpan
from paceline.cluster.history.lineage import Line
from paceline.cluster.history.node_readings import KeepReadings
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import trial_slots
from paceline.db.repositories.metric_columns import StoredBucket
from paceline.db.repositories.trial_slots import GenerationSpan, HeldSlot


@dataclass(frozen=True)
class TrialSlotUse:
    """Jobs' generations and slots, and the nodes that these are on."""

    now: datetime
    generations: Mapping[str, Sequence[GenerationSpan]]
    slots: Mapping[str, Sequence[HeldSlot]]
    nodes: Mapping[str, NodeRow]
    energy_joules: Mapping[str, float]  # of the jobs whose cards were all read, and whose ranks are all kept

    def held_seconds(self, job_id: str) -> float:
        """How long the job held slots, in all of its generations."""
        return sum(slot_hours.seconds(each, self.now) for each in self.generations.get(job_id, ()))

    def slot_hours(self, job_id: str) -> float:
        """Slots times hours, spare ones included."""
        held = Counter(slot.generation for slot in self.slots.get(job_id, ()))
        return slot_hours.slot_hours(self.generations.get(job_id, ()), held, self.now)

    def machines(self, job_id: str) -> int | None:
        """The number of hosts of the newest generation, however many agents they have; None: not known."""
        held = self.slots.get(job_id, ())
        newest = max((each.generation for each in held), default=0)
        hosts = {host_of(self.nodes[each.node_id]) for each in held if each.generation == newest and each.node_id in self.nodes}
        return len(hosts) or None


async def read_slot_use(
    control: AsyncSession, points: AsyncSession, job_ids: Sequence[str], now: datetime, keep: KeepReadings
) -> TrialSlotUse:
    generations = await trial_slots.generations(control, job_ids)
    slots = await trial_slots.slots(control, job_ids)
    nodes = await node_rows.by_id(control, {each.node_id for held in slots.values() for each in held})
    holdings = {
        job_id: card_holdings_of(held, spans, nodes, now)
        for job_id, held in slots.items()
        if slot_hours.are_ranks_kept(spans := generations.get(job_id, []), {each.generation for each in held}, now)
    }
    return TrialSlotUse(now, generations, slots, nodes, await card_usage.energy_of_jobs(points, holdings, now, keep))


def card_holdings_of(
    held: Sequence[HeldSlot], generations: Sequence[GenerationSpan], nodes: Mapping[str, NodeRow], now: datetime
) -> list[CardHolding]:
    """The cards that a job's ranks held, each for as long as its rank kept it. Empty where all slots are CPUs."""
    spans = {each.generation: TimeSpan(each.started_at.timestamp(), (each.ended_at or now).timestamp()) for each in generations}
    found = []
    for each in held:
        node = nodes.get(each.node_id)
        if node is not None and node.device == "cuda" and each.generation in spans:
            span = spans[each.generation]
            found.append(CardHolding(each.rank, each.generation, node.id, node.name, each.slot, each.card, span, now=False))
    return joined(found)


def host_of(node: NodeRow) -> str:
    """The name of the machine that a node's agent runs on; of one that does not tell, the node itself."""
    return str((node.inventory or {}).get("hostname") or node.id)


def useful_seconds(buckets: Sequence[StoredBucket], lines: Sequence[Line]) -> float:
    """Seconds in steps that count, of buckets of step times: of a generation whose last steps were lost, the share of those that were not."""
    total, told, last = dict[int, float](), dict[int, int](), dict[int, int]()
    for each in buckets:
        total[each.generation] = total.get(each.generation, 0.0) + each.bucket.sum
        told[each.generation] = told.get(each.generation, 0) + each.bucket.count
        last[each.generation] = max(last.get(each.generation, 0), each.bucket.last_step)
    found = 0.0
    for line in lines:
        if line.generation in total:
            done = last[line.generation] - line.first + 1
            found += total[line.generation] * min(1.0, line.steps / max(done, 1))
    return found
