"""The memory need of a rank of a planned job, in the words of the plan."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.api.schemas.jobs import MemoryEstimate
from paceline.db.models.nodes import NodeRow
from paceline.parallelism.model_shape import CPU, CUDA, Kernels
from paceline.parallelism.planning.memory import RankMemory
from paceline.parallelism.words import size
from paceline.training.planning.estimates import Estimates
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec

ON_TOP = {
    CPU: "Excludes Python, PyTorch and kernel workspace",
    CUDA: "Excludes the CUDA context, allocator gaps and kernel workspace",
}
KERNELS = {CPU: "CPU kernels", CUDA: "CUDA kernels"}


def kernels_of(nodes: Sequence[NodeRow], spec: JobSpec) -> Kernels:
    """The kernels that the job's ranks will use: those of the device that it asks for, else CUDA's where a node has a GPU."""
    if spec.resources.device is not None:
        return CUDA if spec.resources.device == "cuda" else CPU
    return CUDA if _cards(nodes) else CPU


def shown(found: Estimates, spec: JobSpec, kernels: Kernels) -> MemoryEstimate | None:
    return _shown(found.memory, found.gradient_copies, spec, kernels) if found.memory is not None else None


def too_little_memory(estimate: MemoryEstimate | None, spec: JobSpec, nodes: Sequence[NodeRow]) -> str | None:
    cards, stated = _cards(nodes) if kernels_of(nodes, spec) == CUDA else [], spec.resources.memory_per_slot
    limits = (
        [(stated, "resources.memory_per_slot is")] if stated else [(bytes_, "the smallest GPU here has") for bytes_ in sorted(cards)[:1]]
    )
    for limit, words in limits:
        if estimate is not None and estimate.total > limit:
            return f"a rank needs about {size(estimate.total)} {estimate.moment}; {words} {size(limit)}: {_way_out(estimate, spec)}"
    return None


def _cards(nodes: Sequence[NodeRow]) -> list[int]:
    """The bytes of each GPU here."""
    return [gpu["memory_bytes"] for node in nodes for gpu in (node.inventory or {}).get("gpus", [])]


def _shown(found: RankMemory, gradient_copies: float, spec: JobSpec, kernels: Kernels) -> MemoryEstimate:
    return MemoryEstimate(
        parameters=found.parameters,
        gradients=found.gradients,
        optimizer=found.optimizer,
        activations=found.activations,
        buffers=found.buffers,
        total=found.total,
        moment=found.moment,
        made_from=_made_from(gradient_copies, spec, kernels),
        note=_note(found, spec, kernels),
    )


def _made_from(copies: float, spec: JobSpec, kernels: Kernels) -> str:
    samples = "1 sample" if derived.micro_batch_size(spec) == 1 else f"{derived.micro_batch_size(spec)} samples"
    tree = f", {copies:.1f} gradient copies for deterministic sums" if derived.is_reproducible(spec) else ""
    return f"micro-batches of {samples} in {spec.precision}, {spec.optimizer.kind}{tree}, {KERNELS[kernels]}"


def _note(found: RankMemory, spec: JobSpec, kernels: Kernels) -> str:
    master = f"Parameters, gradients and optimizer state stay fp32; {spec.precision} is for activations and copies of weights. "
    saves = (
        f". Asynchronous saves keep copies in the host's memory, about {size(found.save_copies)}" if spec.checkpoint.asynchronous else ""
    )
    return ("" if spec.precision == "fp32" else master) + ON_TOP[kernels] + saves


def _way_out(estimate: MemoryEstimate, spec: JobSpec) -> str:
    """The way out, by the part that takes most."""
    if estimate.activations > estimate.total // 2 and derived.micro_batch_size(spec) > 1:
        return f"use training.micro_batch_size={derived.micro_batch_size(spec) // 2} or less"
    if derived.is_reproducible(spec) and estimate.gradients + estimate.buffers > 2 * estimate.parameters:
        return "reproducible: false keeps fewer copies of the gradients"
    return "use strategy auto, a smaller model, or slots with more memory"
