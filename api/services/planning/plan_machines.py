"""The machines that a planned job would run on, as far as the inventory knows them, with assumptions for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.api.errors import ProblemError
from paceline.db.models.nodes import NodeRow
from paceline.monitoring.devices import Peak, peak_of
from paceline.parallelism.model_shape import CPU, CUDA, Kernels
from paceline.parallelism.planning.hardware_defaults import CPU_SLOTS, GPUS, SHARE_OF_PEAK, HardwareDefaults
from paceline.parallelism.planning.step_time import Machines
from paceline.training.spec.job import JobSpec


@dataclass(frozen=True)
class ClusterProfile:
    machines: Machines
    kernels: Kernels
    assumed: str  # for people


def cluster_profile(spec: JobSpec, nodes: Sequence[NodeRow]) -> ClusterProfile:
    """The nodes that placement would look at, of which the smallest counts. Raises a problem where there are none to plan for."""
    fitting = _of_one_kind([node for node in nodes if node.slots >= spec.resources.slots_per_node], spec.resources.nodes)
    if not fitting:
        raise _nothing_to_plan_for(spec)
    surroundings = GPUS if fitting[0].device == "cuda" else CPU_SLOTS
    peak = _peak(fitting, spec.precision)
    one_host = len({(node.inventory or {}).get("hostname", node.id) for node in fitting}) == 1
    machines = Machines(
        nodes=spec.resources.nodes,
        slots_per_node=spec.resources.slots_per_node,
        memory_bytes=spec.resources.memory_per_slot or min(map(_slot_bytes, fitting)),
        flops_per_second=SHARE_OF_PEAK * peak.flops if peak else surroundings.flops_per_second,
        within=surroundings.within,
        between=surroundings.within if one_host else surroundings.between,
        overlaps=surroundings.overlaps,
        memory_bytes_per_second=surroundings.memory_bytes_per_second,
    )
    if machines.memory_bytes == 0:
        raise _memory_unknown(spec)
    return ClusterProfile(machines, CUDA if surroundings is GPUS else CPU, _assumed(surroundings, peak))


def _of_one_kind(nodes: Sequence[NodeRow], wanted: int) -> list[NodeRow]:
    """The nodes of one kind, as placement chooses them: GPUs first, unless more of the wanted slots are elsewhere."""
    kinds = [[node for node in nodes if node.device == device] for device in ("cuda", "cpu")]
    return max(kinds, key=lambda kind: min(len(kind), wanted))


def _slot_bytes(node: NodeRow) -> int:
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


def _nothing_to_plan_for(spec: JobSpec) -> ProblemError:
    slots = spec.resources.slots_per_node
    return ProblemError(
        "cannot_choose",
        f"strategy auto plans for machines that are here, and no node with {slots} slot{'' if slots == 1 else 's'} has joined; add one "
        "(paceline worker), ask for fewer slots_per_node, or use ddp or fsdp",
    )


def _memory_unknown(spec: JobSpec) -> ProblemError:
    return ProblemError(
        "cannot_choose",
        "it is not known yet how much memory a slot has, since a node's agent has not reported it; state resources.memory_per_slot, for example 8GiB",
    )
