"""How much arithmetic a model needs for one sample, forward and backward, from its spec alone. No torch: the coordinator uses this too.

A multiply-add counts as two. A test holds the formulas to what torch counts on the built models.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.parallelism.model_shape import NumberFormats
from paceline.training.models.catalog import Model
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.sizes import gpt_parameters
from paceline.training.models.hf.config import HfModel
from paceline.training.models.hf.sizes import hf_sizes
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.mlp.sizes import CLASSIFICATION_SHAPES, mlp_parameters
from paceline.training.models.resnet import shape as resnet
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.schema.data import Data
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload

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
    """Return the model's arithmetic; None for a user's own model or script, and for some of transformers (`models/hf/sizes.py`)."""
    match spec.workload:
        case BuiltinWorkload(model, data):
            return flops_of(model, data)
    return None


def flops_of(model: Model, data: Data | None) -> ModelFlops | None:
    if isinstance(model, GptModel):
        return gpt_flops(model)
    if isinstance(model, HfModel):
        return hf_flops(model)
    if isinstance(model, MlpModel):
        return mlp_flops(model, data)
    return resnet_flops(model)


def gpt_flops(model: GptModel) -> ModelFlops:
    looked_up = 0 if model.tied_embeddings else model.vocab_size * model.dim
    return decoder_flops(gpt_parameters(model) - looked_up, model.layers, model.dim, model.context)


def hf_flops(model: HfModel) -> ModelFlops | None:
    sizes = hf_sizes(model.config) if model.config is not None else None
    if sizes is None:
        return None
    return decoder_flops(sizes.parameters - sizes.looked_up, sizes.layers, sizes.attention_width, model.context)


def decoder_flops(parameters: int, layers: int, width: int, context: int) -> ModelFlops:
    """6N + 12·l·d·t for each token (Chowdhery et al. 2022, PaLM, appendix B). N leaves out embeddings that are only looked up; d is the width of
    all heads together."""
    per_token = 6 * parameters + 12 * layers * width * context
    formula = f"6N + 12·l·d·t per token (PaLM, appendix B), N={parameters:,}, l={layers}, d={width}, t={context}"
    return ModelFlops(float(per_token * context), formula)


def mlp_flops(model: MlpModel, data: Data | None) -> ModelFlops:
    parameters = mlp_parameters(model.hidden, *CLASSIFICATION_SHAPES[data.kind if data else "digits"])
    return ModelFlops(6.0 * parameters, f"6N per sample, N={parameters:,}")


def resnet_flops(model: ResnetModel) -> ModelFlops:
    """The convolutions' multiply-adds at the size of each stage; norms and identity shortcuts are left out."""
    if model.form == "imagenet":
        return _of_multiply_adds(resnet.shape(model, NumberFormats()).flops // 2)
    blocks = (model.depth - 2) // 6
    area, fan_in = _IMAGE**2, model.width
    total = _products(3, model.width, area)
    for stage in range(3):
        width = model.width << stage
        area = (_IMAGE >> stage) ** 2
        total += _products(fan_in, width, area) + (2 * blocks - 1) * _products(width, width, area)
        fan_in = width
    total += fan_in * 10
    return _of_multiply_adds(total)


def _of_multiply_adds(total: int) -> ModelFlops:
    return ModelFlops(float(2 * _FORWARD_AND_BACKWARD * total), f"6 x {total:,} multiply-adds of the convolutions per image")


def _products(fan_in: int, fan_out: int, area: int) -> int:
    """Multiply-adds of a 3x3 convolution over `area` places."""
    return 9 * fan_in * fan_out * area
