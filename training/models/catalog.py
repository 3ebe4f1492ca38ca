"""The models that come with Paceline: which there are, what they train on, their sizes and shapes. Pure, no torch."""

from __future__ import annotations

from typing import Annotated, overload

from pydantic import Field

from paceline.parallelism.model_shape import ModelShape, NumberFormats
from paceline.training.models.gpt import shape as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.sizes import gpt_parameters
from paceline.training.models.hf import shape as hf
from paceline.training.models.hf.config import HfModel
from paceline.training.models.hf.sizes import hf_sizes
from paceline.training.models.mlp import shape as mlp
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.mlp.sizes import CLASSIFICATION_SHAPES, mlp_parameters
from paceline.training.models.resnet import shape as resnet
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.models.resnet.sizes import resnet_parameters
from paceline.training.schema.data import Data

Model = Annotated[GptModel | MlpModel | ResnetModel | HfModel, Field(discriminator="kind")]

_TEXT = {"stdlib_text", "tokens"}
#: Which data each model family can train on.
MODEL_DATA = {"gpt": _TEXT, "hf": _TEXT, "mlp": {"digits", "mnist", "cifar10"}, "resnet": {"digits", "cifar10"}}


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


@overload
def shape_of(model: GptModel | MlpModel | ResnetModel, data: Data | None, numbers: NumberFormats) -> ModelShape: ...
@overload
def shape_of(model: Model, data: Data | None, numbers: NumberFormats) -> ModelShape | None: ...
def shape_of(model: Model, data: Data | None, numbers: NumberFormats) -> ModelShape | None:
    """`data` gives an MLP its input size; without it the digits' is assumed."""
    if isinstance(model, GptModel):
        return gpt.shape(model, numbers)
    if isinstance(model, HfModel):
        return hf.shape(model, numbers)
    if isinstance(model, MlpModel):
        return mlp.shape(model, *CLASSIFICATION_SHAPES[data.kind if data else "digits"], numbers)
    return resnet.shape(model, numbers)
