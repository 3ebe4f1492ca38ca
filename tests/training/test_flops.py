"""The formulas against what torch counts while the real models compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests import factories
from training.flops import flops_of, model_flops
from training.models.gpt import model as gpt
from training.models.mlp import model as mlp
from training.models.resnet import model as resnet
from training.workload import Digits, GptModel, MlpModel, ResnetModel

#: torch leaves out norms and biases, and the first layer's gradient of its input; the formulas do not.
CLOSE = 0.05


def counted(model: nn.Module, batch: Tensor) -> float:
    """For one sample. Attention as plain products: those of the fused kernel for CPUs are not counted."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        model(batch).sum().backward()
    return float(counter.get_total_flops()) / len(batch)


@pytest.mark.parametrize("spec", [GptModel(), GptModel(layers=2, dim=64, heads=2, context=256, vocab_size=1000, tied_embeddings=False)])
def test_gpt(spec: GptModel) -> None:
    tokens = torch.zeros(2, spec.context, dtype=torch.int64)
    assert flops_of(spec, None).per_sample == pytest.approx(counted(gpt.build(spec), tokens), rel=CLOSE)


def test_mlp() -> None:
    spec = MlpModel(hidden=(512, 512, 512))
    assert flops_of(spec, Digits()).per_sample == pytest.approx(counted(mlp.build(spec, 64, 10), torch.zeros(4, 64)), rel=CLOSE)


@pytest.mark.parametrize(("depth", "width"), [(8, 16), (20, 24)])
def test_resnet(depth: int, width: int) -> None:
    spec = ResnetModel(depth=depth, width=width)
    assert flops_of(spec, None).per_sample == pytest.approx(counted(resnet.build(spec), torch.zeros(2, 3, 32, 32)), rel=CLOSE)


def test_the_formula_is_said_with_its_numbers() -> None:
    assert flops_of(GptModel(), None).formula == "6N + 12·l·d·t per token (PaLM, appendix B), N=3,279,104, l=4, d=256, t=128"


@pytest.mark.parametrize("own", [{"entrypoint": "task:make"}, {"script": {"path": "train.py"}, "training": None}])
def test_what_nobody_can_count_has_no_figure(own: dict[str, Any]) -> None:
    assert model_flops(factories.job_spec(model=None, data=None, **own)) is None
