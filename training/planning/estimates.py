"""What a job will need, from its spec alone: the planner's view of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from paceline.parallelism.model_shape import Kernels, NumberFormats
from paceline.parallelism.pipelines.stages import costs_of, describe_stages, partition_layers
from paceline.parallelism.planning.memory import RankMemory, TrainingSetup, memory
from paceline.training.spec import derived
from paceline.training.spec.derived import known_shape

if TYPE_CHECKING:
    from paceline.training.spec.job import JobSpec  # which asks this module what a pipeline can be made of


@dataclass(frozen=True)
class Estimates:
    """Estimates for one rank of a job's world that take a while to compute."""

    memory: RankMemory | None  # None: the model's shape is unknown
    gradient_copies: float  # that a rank holds while it adds them up, at most
    stages: tuple[str, ...]  # in words; empty: no pipeline


def estimates_of(spec: JobSpec, kernels: Kernels) -> Estimates:
    """Estimate a job. The spec must have a `training` part and not search for its micro-batch."""
    return Estimates(memory_of(spec, kernels), setup_of(spec).gradient_copies.most, tuple(stage_names(spec)))


def memory_of(spec: JobSpec, kernels: Kernels, ranks: int | None = None) -> RankMemory | None:
    """Estimate the memory of one of `ranks` ranks (default: the spec's); None if the model's shape is unknown."""
    shape = known_shape(spec, NumberFormats(spec.precision, kernels))
    if shape is None:
        return None
    setup = setup_of(spec, ranks)
    return memory(shape, replace(setup, cpu_offload=setup.cpu_offload and kernels.beside_host))


def stage_costs(spec: JobSpec) -> list[float] | None:
    """Return the costs of the model's units, by which a pipeline is cut; None if they are unknown before a rank has built the model."""
    shape = known_shape(spec, NumberFormats(spec.precision))
    return None if shape is None else costs_of(shape.layers)


def stage_names(spec: JobSpec) -> list[str]:
    """Describe the units of each stage of a job's pipeline. Empty without a pipeline, or where only a rank can tell."""
    plan, shape = spec.parallelism, known_shape(spec, NumberFormats(spec.precision))
    if plan.pipeline == 1 or shape is None or plan.stages_by != "operations":
        return []
    return describe_stages(partition_layers(shape.layers, plan.stages))


def setup_of(spec: JobSpec, ranks: int | None = None) -> TrainingSetup:
    """Return the setup of a spec with a `training` part, for `parallelism/planning`."""
    return TrainingSetup(
        degrees=spec.parallelism.degrees(ranks or spec.world_size),
        optimizer=spec.optimizer.kind,
        precision=spec.precision,
        micro_batch_size=derived.micro_batch_size(spec),
        micro_batches=derived.micro_batches(spec),
        reproducible=derived.is_reproducible(spec),
        activation_checkpointing=spec.parallelism.activation_checkpointing,
        reshard_after_forward=spec.parallelism.reshard_after_forward,
        cpu_offload=spec.parallelism.cpu_offload,
        pipeline_schedule=spec.parallelism.pipeline_schedule,
        stages_per_rank=spec.parallelism.stages_on_each_rank,
        keeps_unsent=spec.communication.leaves_out,
        communication=derived.communication_options(spec),
    )
