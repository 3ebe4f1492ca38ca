"""The summary of the cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.schemas.metrics import ClusterSummary, StateCount
from paceline.cluster.states import NodeState
from paceline.db.models.jobs import JobRow
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows
from paceline.db.repositories import slots as slot_rows

#: Nodes whose slots exist as far as we know: a cordoned one's are in use or free, a lost one's are neither.
_PRESENT = frozenset({NodeState.READY, NodeState.CORDONED, NodeState.DRAINING})


async def summarize(session: AsyncSession, now: datetime) -> ClusterSummary:
    nodes = [node for node in await node_rows.present(session) if node.state in _PRESENT]
    used = await slot_rows.used_by_node(session)
    hosts = _hosts(nodes)
    cards = [card for node in nodes if node.last_sample for card in node.last_sample.get("gpus", [])]
    power = _told(cards, "power_watts")
    running = await job_rows.running(session)
    return ClusterSummary(
        nodes=_counts(await node_rows.count_by_state(session)),
        jobs=_counts(await job_rows.count_by_state(session)),
        slots_total=sum(node.slots for node in nodes),
        slots_used=sum(used.get(node.id, 0) for node in nodes),
        slots_free=sum(node.slots - used.get(node.id, 0) for node in nodes if node.state is NodeState.READY),
        gpus=sum(_gpus(node) for node in nodes),
        cpu_percent=_mean([host["cpu_percent"] for host in hosts]),
        memory_used_bytes=sum(host["memory_used_bytes"] for host in hosts),
        memory_total_bytes=sum(host["memory_total_bytes"] for host in hosts),
        tokens_per_second=sum(_rate(job, "tokens_per_second") for job in running),
        samples_per_second=sum(_rate(job, "samples_per_second") for job in running),
        gpu_percent=_mean(_told(cards, "utilization_percent")),
        gpu_memory_used_bytes=int(sum(_told(cards, "memory_used_bytes"))),
        gpu_memory_total_bytes=int(sum(_told(cards, "memory_total_bytes"))),
        gpu_power_watts=sum(power) if power else None,
        updated_at=now,
    )


def _hosts(nodes: Sequence[NodeRow]) -> list[dict[str, Any]]:
    """The newest host sample of each machine, however many agents are on it."""
    told = [node for node in nodes if node.last_sample and node.last_sample.get("host")]
    told.sort(key=lambda node: node.heartbeat_at or node.joined_at)
    by_machine = {(node.inventory or {}).get("machine") or node.id: node.last_sample or {} for node in told}
    return [sample["host"] for sample in by_machine.values()]


def _counts(counts: Mapping[str, int]) -> list[StateCount]:
    return [StateCount(state=state, count=count) for state, count in sorted(counts.items())]


def _gpus(node: NodeRow) -> int:
    return len((node.inventory or {}).get("gpus", []))


def _told(cards: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """The values of one reading, of the cards that tell it."""
    return [float(card[name]) for card in cards if card.get(name) is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _rate(job: JobRow, name: str) -> float:
    progress: dict[str, Any] = job.progress or {}
    value = float(progress.get(name) or 0.0)
    return value if math.isfinite(value) else 0.0
