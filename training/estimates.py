"""What a job will need, from its spec alone: the planner's view of it. Pure; `sizes.py` counts only parameters."""

from __future__ import annotations

from parallelism.estimate import Memory, Setup, memory
from parallelism.shape import Kernels, Numbers, Shape
from training.models.gpt import shape as gpt
from training.models.mlp import shape as mlp
from training.models.resnet import shape as resnet
from training.sizes import CLASSIFICATION_SHAPES
from training.spec import JobSpec
from training.workload import Data, GptModel, HfModel, MlpModel, ResnetModel


def memory_of(spec: JobSpec, kernels: Kernels) -> Memory | None:
    """Of one rank; None: nobody knows what a user's own model or script keeps, or one of transformers."""
    if spec.model is None or isinstance(spec.model, HfModel):
        return None
    return memory(shape_of(spec.model, spec.data, Numbers(spec.precision, kernels)), setup_of(spec))


def setup_of(spec: JobSpec) -> Setup:
    """Only for specs with a `training` part."""
    return Setup(
        degrees=spec.parallelism.degrees(spec.world_size),
        optimizer=spec.optimizer.kind,
        precision=spec.precision,
        micro_batch_size=spec.micro_batch_size,
        micro_batches=spec.micro_batches,
        reproducible=spec.is_reproducible,
        activation_checkpointing=spec.parallelism.activation_checkpointing,
        reshard_after_forward=spec.parallelism.reshard_after_forward,
        cpu_offload=spec.parallelism.cpu_offload,
    )


def shape_of(model: GptModel | MlpModel | ResnetModel, data: Data | None, numbers: Numbers) -> Shape:
    """`data` gives an MLP its input size; without it the digits' is assumed."""
    if isinstance(model, GptModel):
        return gpt.shape(model, numbers)
    if isinstance(model, MlpModel):
        return mlp.shape(model, *CLASSIFICATION_SHAPES[data.kind if data else "digits"], numbers)
    return resnet.shape(model, numbers)
