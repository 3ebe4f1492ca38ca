"""The machines that a planned job would run on, as far as the inventory knows them, with assumptions for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from paceline.api.errors import ProblemError
from paceline.api.services.specs.job_views import node_views, request_for, requirements_of
from paceline.cluster.policy.placement import Placement, place
from paceline.cluster.states import NodeState
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.devices import Peak, peak_of
from paceline.parallelism.model_shape import CPU, CUDA, Kernels
from paceline.parallelism.planning.hardware_defaults import CPU_SLOTS, GPUS, SHARE_OF_PEAK, HardwareDefaults
from paceline.parallelism.planning.machines import Machines
from paceline.training.schema.parallelism import REPLICAS
from paceline.training.schema.resources import Resources
from paceline.training.spec.job import JobSpec

#: The time of a request that is the only one.
_ANY_TIME = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class ClusterProfile:
    machines: Machines
    kernels: Kernels
    assumed: str  # for people


class NotYetKnownError(ProblemError):
    """A plan cannot be chosen at the moment: no node is here, or one has joined and not told yet what it has."""


def cluster_profile(spec: JobSpec, nodes: Sequence[NodeRow]) -> ClusterProfile:
    """The nodes that placement would look at, of which the smallest counts. Raises a problem where there are none to plan for."""
    resources, wanted = spec.resources, requirements_of(spec)
    possible = {view.id for view in node_views(nodes, ()) if view.slots >= resources.slots_per_block and view.obstacle(wanted) is None}
    fitting = _of_one_kind([node for node in nodes if node.id in possible], resources)
    if not fitting:
        raise _nothing_to_plan_for(spec, nodes)
    surroundings = GPUS if fitting[0].device == "cuda" else CPU_SLOTS
    peak = _peak(fitting, spec.precision)
    one_host = len({(node.inventory or {}).get("hostname", node.id) for node in fitting}) == 1
    shares = shares_without_others(spec, nodes) or (resources.slots_per_block,) * resources.blocks
    machines = Machines(
        nodes=len(shares),
        slots_per_node=max(shares),
        shares=shares if len(set(shares)) > 1 else (),
        memory_bytes=spec.resources.memory_per_slot or min(map(slot_bytes, fitting)),
        flops_per_second=SHARE_OF_PEAK * peak.flops if peak else surroundings.flops_per_second,
        within=surroundings.within,
        between=surroundings.within if one_host else surroundings.between,
        overlaps=surroundings.overlaps,
        memory_bytes_per_second=surroundings.memory_bytes_per_second,
    )
    if machines.memory_bytes == 0:
        raise _memory_unknown(spec)
    return ClusterProfile(machines, CUDA if surroundings is GPUS else CPU, _assumed(surroundings, peak))


def shares_without_others(spec: JobSpec, nodes: Sequence[NodeRow]) -> tuple[int, ...]:
    """The slots that the job would have on each node if no other job were here, in node-rank order; empty: it would not fit."""
    views = [replace(view, schedulable=True) for view in node_views(nodes, ())]
    request = request_for(spec, spec.name, spec.world_size, spec.priority, _ANY_TIME)
    plan = REPLICAS if spec.parallelism.is_auto else spec.parallelism
    (verdict,) = place([replace(request, min_blocks=None, most_blocks=None, plan=plan)], views)
    return tuple(len(share.slots) for share in verdict.shares) if isinstance(verdict, Placement) else ()


def _of_one_kind(nodes: Sequence[NodeRow], resources: Resources) -> list[NodeRow]:
    """The nodes of one kind, as placement chooses them: GPUs first, unless more of the wanted slots are elsewhere."""
    kinds = [[node for node in nodes if node.device == device] for device in ("cuda", "cpu")]
    size, most = resources.slots_per_block, 1 if resources.spread else resources.blocks
    return max(kinds, key=lambda kind: min(resources.blocks, sum(min(most, node.slots // size) for node in kind)))


def slot_bytes(node: NodeRow) -> int:
    """The bytes of a slot; 0: its agent has not reported them yet."""
    inventory = node.inventory or {}
    cards = [int(gpu["memory_bytes"]) for gpu in inventory.get("gpus", [])]
    return min(cards) if cards else int(inventory.get("memory_bytes", 0)) // max(1, node.slots)


def _peak(nodes: Sequence[NodeRow], precision: str) -> Peak | None:
    """The peak of the slowest card; None where one is not known."""
    names = {str(gpu["name"]) for node in nodes for gpu in (node.inventory or {}).get("gpus", [])}
    peaks = [peak for name in names if (peak := peak_of(name, precision))]
    return min(peaks, key=lambda peak: peak.flops) if peaks and len(peaks) == len(names) else None


def _assumed(surroundings: HardwareDefaults, peak: Peak | None) -> str:
    speed = f"{SHARE_OF_PEAK:.0%} of {peak.flops / 1e12:g} TFLOP/s ({peak.source}), " if peak else ""
    unknown = f"{surroundings.flops_per_second / 1e12:g} TFLOP/s a GPU, " if surroundings is GPUS and not peak else ""
    return f"assumed, since it is not measured: {speed}{unknown}{surroundings.words}"


def _nothing_to_plan_for(spec: JobSpec, nodes: Sequence[NodeRow]) -> ProblemError:
    slots, waits = spec.resources.slots_per_block, not nodes or any(node.state is NodeState.JOINING for node in nodes)
    problem = NotYetKnownError if waits else ProblemError
    return problem(
        "cannot_choose",
        f"strategy auto plans for machines that are here, and no node with {slots} slot{'' if slots == 1 else 's'} that the job may use has "
        "joined; add one (paceline worker), ask for less in resources, or use ddp or fsdp",
    )


def _memory_unknown(spec: JobSpec) -> ProblemError:
    return NotYetKnownError(
        "cannot_choose",
        "it is not known yet how much memory a slot has, since a node's agent has not reported it; state resources.memory_per_slot, for example 8GiB",
    )
