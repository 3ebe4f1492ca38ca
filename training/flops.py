"""How much arithmetic a model needs for one sample, forward and backward, from its spec alone. No torch: the coordinator uses this too.

A multiply-add counts as two. A test holds the formulas to what torch counts on the built models.
"""

from __future__ import annotations

from dataclasses import dataclass

from training.sizes import CLASSIFICATION_SHAPES, gpt_parameters, mlp_parameters
from training.spec import JobSpec
from training.workload import Data, GptModel, HfModel, MlpModel, ResnetModel

#: CIFAR's images; each later stage has half the height and width.
_IMAGE = 32
#: Forward is one product with each weight; backward two, for the weights and for what comes in.
_FORWARD_AND_BACKWARD = 3


@dataclass(frozen=True)
class ModelFlops:
    """`formula` says how it was counted, with its numbers."""

    per_sample: float
    formula: str


def model_flops(spec: JobSpec) -> ModelFlops | None:
    """None: nobody knows what a user's own model or script computes, or one of transformers."""
    if spec.model is None or isinstance(spec.model, HfModel):
        return None
    return flops_of(spec.model, spec.data)


def flops_of(model: GptModel | MlpModel | ResnetModel, data: Data | None) -> ModelFlops:
    if isinstance(model, GptModel):
        return gpt_flops(model)
    if isinstance(model, MlpModel):
        return mlp_flops(model, data)
    return resnet_flops(model)


def gpt_flops(model: GptModel) -> ModelFlops:
    """6N + 12·l·d·t for each token (Chowdhery et al. 2022, PaLM, appendix B). N leaves out an embedding that is only looked up."""
    looked_up = 0 if model.tied_embeddings else model.vocab_size * model.dim
    parameters = gpt_parameters(model) - looked_up
    per_token = 6 * parameters + 12 * model.layers * model.dim * model.context
    formula = f"6N + 12·l·d·t per token (PaLM, appendix B), N={parameters:,}, l={model.layers}, d={model.dim}, t={model.context}"
    return ModelFlops(float(per_token * model.context), formula)


def mlp_flops(model: MlpModel, data: Data | None) -> ModelFlops:
    parameters = mlp_parameters(model.hidden, *CLASSIFICATION_SHAPES[data.kind if data else "digits"])
    return ModelFlops(6.0 * parameters, f"6N per sample, N={parameters:,}")


def resnet_flops(model: ResnetModel) -> ModelFlops:
    """The convolutions' multiply-adds at the size of each stage; norms and shortcuts are left out."""
    blocks = (model.depth - 2) // 6
    area, fan_in = _IMAGE**2, model.width
    total = _products(3, model.width, area)
    for stage in range(3):
        width = model.width << stage
        area = (_IMAGE >> stage) ** 2
        total += _products(fan_in, width, area) + (2 * blocks - 1) * _products(width, width, area)
        fan_in = width
    total += fan_in * 10
    return ModelFlops(float(2 * _FORWARD_AND_BACKWARD * total), f"6 x {total:,} multiply-adds of the convolutions per image")


def _products(fan_in: int, fan_out: int, area: int) -> int:
    """Multiply-adds of a 3x3 convolution over `area` places."""
    return 9 * fan_in * fan_out * area
