"""What a job will need, from its spec alone: the planner's view of it. Pure; `sizes.py` counts only parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

from parallelism.pipelines.stages import costs_of, cut_layers, named
from parallelism.planning.memory import Memory, Setup, memory
from parallelism.planning.shape import Kernels, Numbers, Shape
from training.models.gpt import shape as gpt
from training.models.hf import shape as hf
from training.models.mlp import shape as mlp
from training.models.resnet import shape as resnet
from training.planning.sizes import CLASSIFICATION_SHAPES
from training.spec.workload import Data, GptModel, HfModel, MlpModel, Model, ResnetModel

if TYPE_CHECKING:
    from training.spec.job import JobSpec  # which asks this module what a pipeline can be made of


@dataclass(frozen=True)
class Estimates:
    """What takes a while to find out of a job, for one rank of its world."""

    memory: Memory | None  # None: nobody knows the model's shape
    gradient_copies: float  # that a rank holds while it adds them up, at most
    stages: tuple[str, ...]  # in words; empty: no pipeline


def estimates_of(spec: JobSpec, kernels: Kernels) -> Estimates:
    """Only for specs with a `training` part that do not search for their micro-batch."""
    return Estimates(memory_of(spec, kernels), setup_of(spec).gradient_copies.most, tuple(stage_names(spec)))


def memory_of(spec: JobSpec, kernels: Kernels, ranks: int | None = None) -> Memory | None:
    """Of one rank of so many (default: the spec's); None: nobody knows the model's shape."""
    shape = known_shape(spec, Numbers(spec.precision, kernels))
    if shape is None:
        return None
    setup = setup_of(spec, ranks)
    return memory(shape, replace(setup, cpu_offload=setup.cpu_offload and kernels.beside_host))


def known_shape(spec: JobSpec, numbers: Numbers) -> Shape | None:
    """None: nobody knows what a user's own model or script is made of, nor some of transformers (`hf/shape.py`)."""
    return shape_of(spec.model, spec.data, numbers) if spec.model is not None else None


def stage_costs(spec: JobSpec) -> list[float] | None:
    """Of the units of a model, which a pipeline is cut by; None: nobody knows them before a rank has built it."""
    shape = known_shape(spec, Numbers(spec.precision))
    return None if shape is None else costs_of(shape.layers)


def stage_names(spec: JobSpec) -> list[str]:
    """What each stage of a job's pipeline has, in words; none without a pipeline, or where only a rank can tell."""
    plan, shape = spec.parallelism, known_shape(spec, Numbers(spec.precision))
    if plan.pipeline == 1 or shape is None or plan.stages_by != "operations":
        return []
    return named(cut_layers(shape.layers, plan.stages))


def setup_of(spec: JobSpec, ranks: int | None = None) -> Setup:
    """Only for specs with a `training` part."""
    return Setup(
        degrees=spec.parallelism.degrees(ranks or spec.world_size),
        optimizer=spec.optimizer.kind,
        precision=spec.precision,
        micro_batch_size=spec.micro_batch_size,
        micro_batches=spec.micro_batches,
        reproducible=spec.is_reproducible,
        activation_checkpointing=spec.parallelism.activation_checkpointing,
        reshard_after_forward=spec.parallelism.reshard_after_forward,
        cpu_offload=spec.parallelism.cpu_offload,
        pipeline_schedule=spec.parallelism.pipeline_schedule,
        stages_per_rank=spec.parallelism.stages_on_each_rank,
    )


@overload
def shape_of(model: GptModel | MlpModel | ResnetModel, data: Data | None, numbers: Numbers) -> Shape: ...
@overload
def shape_of(model: Model, data: Data | None, numbers: Numbers) -> Shape | None: ...
def shape_of(model: Model, data: Data | None, numbers: Numbers) -> Shape | None:
    """`data` gives an MLP its input size; without it the digits' is assumed."""
    if isinstance(model, GptModel):
        return gpt.shape(model, numbers)
    if isinstance(model, HfModel):
        return hf.shape(model, numbers)
    if isinstance(model, MlpModel):
        return mlp.shape(model, *CLASSIFICATION_SHAPES[data.kind if data else "digits"], numbers)
    return resnet.shape(model, numbers)
