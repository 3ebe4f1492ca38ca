"""How large a model will be, from its spec alone. No torch: the plan preview uses this; a test holds it to the built models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from paceline.training.planning.hf_sizes import hf_sizes
from paceline.training.spec.workload import Data, GptModel, HfModel, MlpModel, Model, ResnetModel

#: (input features, classes) of the classification data sets, as an MLP sees them.
CLASSIFICATION_SHAPES = {"digits": (64, 10), "cifar10": (3 * 32 * 32, 10)}
SWIGLU_MULTIPLE = 32


def swiglu_width(dim: int) -> int:
    """Hidden width of the gated feed-forward: 8/3 dim keeps the size of an ungated 4 dim (Shazeer 2020), rounded up to a multiple."""
    return -(-8 * dim // (3 * SWIGLU_MULTIPLE)) * SWIGLU_MULTIPLE


def parameter_count(model: Model, data: Data | None = None) -> int | None:
    """Trainable parameters; shared ones count once. `data` gives an MLP its input size; without it the digits' is assumed.

    None: only a rank can tell, since the model is in a folder of its node or of a family that is not known here.
    """
    if isinstance(model, HfModel):
        sizes = hf_sizes(model.config) if model.config is not None else None
        return sizes.parameters if sizes is not None else None
    if isinstance(model, GptModel):
        return gpt_parameters(model)
    if isinstance(model, MlpModel):
        return mlp_parameters(model.hidden, *CLASSIFICATION_SHAPES[data.kind if data else "digits"])
    return resnet_parameters(model)


def gpt_parameters(model: GptModel) -> int:
    attention = 4 * model.dim**2
    feed_forward = 3 * model.dim * swiglu_width(model.dim)
    norms = 2 * model.dim
    embeddings = model.vocab_size * model.dim * (1 if model.tied_embeddings else 2)
    return model.layers * (attention + feed_forward + norms) + model.dim + embeddings


def mlp_parameters(hidden: Sequence[int], inputs: int, classes: int) -> int:
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise((inputs, *hidden, classes)))


def resnet_parameters(model: ResnetModel) -> int:
    blocks = (model.depth - 2) // 6
    widths = (model.width, 2 * model.width, 4 * model.width)
    total = convolution(3, model.width) + widths[-1] * 10 + 10
    fan_in = model.width
    for width in widths:
        total += convolution(fan_in, width) + convolution(width, width) + (blocks - 1) * 2 * convolution(width, width)
        fan_in = width
    return total


def convolution(fan_in: int, fan_out: int) -> int:
    """A 3x3 convolution without bias and the two vectors of its batch norm."""
    return 9 * fan_in * fan_out + 2 * fan_out
