from __future__ import annotations

import pytest
from torch import nn

from paceline.training.models.catalog import parameter_count
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.mlp import model as mlp
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.resnet import model as resnet
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.schema.data import Cifar10, Digits


def trainable(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    "spec",
    [
        GptModel(),
        GptModel(layers=1, heads=3, dim=42, context=9, vocab_size=300),
        GptModel(layers=2, heads=2, dim=64, tied_embeddings=False),
    ],
)
def test_gpt(spec: GptModel) -> None:
    assert parameter_count(spec) == trainable(gpt.build(spec))


@pytest.mark.parametrize("hidden", [(), (7,), (128, 64, 3)])
def test_mlp(hidden: tuple[int, ...]) -> None:
    spec = MlpModel(hidden=hidden)
    assert parameter_count(spec, Digits()) == trainable(mlp.build(spec, 64, 10))
    assert parameter_count(spec, Cifar10(path="/data")) == trainable(mlp.build(spec, 3072, 10))


@pytest.mark.parametrize(("depth", "width"), [(8, 16), (20, 16), (32, 5)])
def test_resnet(depth: int, width: int) -> None:
    spec = ResnetModel(depth=depth, width=width)
    assert parameter_count(spec) == trainable(resnet.build(spec))
