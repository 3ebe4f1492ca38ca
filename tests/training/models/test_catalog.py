from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from paceline.training.models.catalog import parameter_count
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.mlp import model as mlp
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.resnet import model as resnet
from paceline.training.models.resnet import stages
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


@pytest.mark.parametrize(("layers", "published"), [(18, 11_181_642), (34, 21_289_802), (50, 23_528_522)])
def test_resnets_of_the_imagenet_form_have_the_published_sizes_with_ten_classes(layers: int, published: int) -> None:
    spec = ResnetModel.model_validate({"num_layers": layers})
    assert (spec.form, spec.depth, spec.width) == ("imagenet", layers, 64)
    assert parameter_count(spec) == published
    built = resnet.build(spec)
    assert trainable(built) == published
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    whole = built.eval()(images)
    staged = images
    for unit in stages.units(built):
        staged = unit.run(staged)
    assert whole.shape == (2, 10)
    torch.testing.assert_close(staged, whole)


def test_layers_of_six_n_plus_two_are_the_cifar_form_as_ever() -> None:
    spec = ResnetModel.model_validate({"num_layers": 20})
    assert spec == ResnetModel()
    assert spec.model_dump() == {"kind": "resnet", "preset": None, "depth": 20, "width": 16}, "nodes of the version before know it"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"depth": 18}, "depth=18 is not 6n . 2; use 14 or 20, or num_layers=18, which is the ImageNet form"),
        (
            {"num_layers": 19},
            "num_layers=19 is not known; use 18, 34 or 50, the ImageNet form, or 6n . 2, such as 14 or 20, the form for CIFAR",
        ),
        ({"num_layers": 20, "form": "imagenet"}, "num_layers=20 has no ImageNet form; use 18, 34 or 50"),
        ({"form": "imagenet", "depth": 20}, "depth=20 has no ImageNet form; use 18, 34 or 50"),
        ({"num_layers": 18, "depth": 20}, "num_layers=18 and depth=20 are the same thing; give one of them"),
    ],
)
def test_depths_that_no_form_has_are_refused(fields: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ResnetModel.model_validate(fields)
