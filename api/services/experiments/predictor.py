"""The cost model for an experiment's analysis: fitted to its own trials, on the devices that they ran on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.services.experiments.slot_use import host_of
from paceline.api.services.planning.plan_machines import slot_bytes
from paceline.cluster.experiments.cost_predictor import CostPredictor
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.spec import ExperimentSpec
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import trial_slots

CPU = "cpu"


async def predictor_of_trials(
    control: AsyncSession,
    experiment_id: str,
    spec: ExperimentSpec,
    facts: Sequence[TrialFacts],
    documents: Mapping[int, Mapping[str, Any]],
) -> CostPredictor | None:
    """The cost model. `documents`: the job specs of trials, by index. None: trials ran on several kinds of devices, of which one fit would be a mixture."""
    nodes = await trial_slots.nodes_of_trials(control, experiment_id)
    devices = devices_of(nodes)
    if len(devices) != 1:
        return None
    device = next(iter(devices))
    return CostPredictor(
        documents,
        spec.scaling,
        None if device == CPU else device,
        {each.index: each.machines for each in facts if each.machines},
        slot_memory_of(nodes),
    )


def devices_of(nodes: Sequence[NodeRow]) -> set[str]:
    """The names of all devices of these nodes, as their drivers give them; of CPU slots `cpu`."""
    found: set[str] = set()
    for node in nodes:
        cards = (node.inventory or {}).get("gpus", [])
        found |= {str(card["name"]) for card in cards} if node.device == "cuda" else {CPU}
    return found


def slot_memory_of(nodes: Sequence[NodeRow]) -> int | None:
    """The bytes of the smallest slot of these nodes; None: not known. CPU slots of several agents on one machine share its memory."""
    slots = Counter[str]()
    for node in nodes:
        slots[host_of(node)] += node.slots
    sizes = [slot_bytes(node) if node.device == "cuda" else slot_bytes(node) * node.slots // slots[host_of(node)] for node in nodes]
    return min(sizes, default=0) or None
