"""The formulas against what torch counts while the real models compute."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from paceline.training.builtin import logits_of
from paceline.training.models.catalog import Model
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.hf import model as hf
from paceline.training.models.hf.config import HfModel
from paceline.training.models.mlp import model as mlp
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.resnet import model as resnet
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.planning.flops import flops_of, model_flops
from paceline.training.schema.data import Data, Digits
from tests import factories

#: torch leaves out norms and biases, and the first layer's gradient of its input; the formulas do not.
CLOSE = 0.05


def counted(model: nn.Module, batch: Tensor) -> float:
    """For one sample. Attention as plain products: those of the fused kernel for CPUs are not counted."""
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        logits_of(model(batch)).sum().backward()
    return float(counter.get_total_flops()) / len(batch)


def by_formula(model: Model, data: Data | None = None) -> float:
    flops = flops_of(model, data)
    assert flops is not None
    return flops.per_sample


@pytest.mark.parametrize("spec", [GptModel(), GptModel(layers=2, dim=64, heads=2, context=256, vocab_size=1000, tied_embeddings=False)])
def test_gpt(spec: GptModel) -> None:
    tokens = torch.zeros(2, spec.context, dtype=torch.int64)
    assert by_formula(spec) == pytest.approx(counted(gpt.build(spec), tokens), rel=CLOSE)


def test_mlp() -> None:
    spec = MlpModel(hidden=(512, 512, 512))
    assert by_formula(spec, Digits()) == pytest.approx(counted(mlp.build(spec, 64, 10), torch.zeros(4, 64)), rel=CLOSE)


@pytest.mark.parametrize(("depth", "width"), [(8, 16), (20, 24)])
def test_resnet(depth: int, width: int) -> None:
    spec = ResnetModel(depth=depth, width=width)
    assert by_formula(spec) == pytest.approx(counted(resnet.build(spec), torch.zeros(2, 3, 32, 32)), rel=CLOSE)


def test_the_formula_is_said_with_its_numbers() -> None:
    flops = flops_of(GptModel(), None)
    assert flops is not None
    assert flops.formula == "6N + 12·l·d·t per token (PaLM, appendix B), N=3,279,104, l=4, d=256, t=128"


HF = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODERS = [
    {"model_type": "llama", **HF},
    {"model_type": "qwen3", **HF, "num_key_value_heads": 2, "head_dim": 12, "tie_word_embeddings": True},
    {"model_type": "gpt2", "vocab_size": 300, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64},
]


@pytest.mark.parametrize("config", DECODERS, ids=lambda config: str(config["model_type"]))
def test_models_of_transformers(config: dict[str, Any]) -> None:
    """Those that no formula is known of are counted on the rank, which must come to the same."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    spec = HfModel(config=config, context=48)
    built = hf.build(spec)
    expected = counted(built, torch.zeros(2, 48, dtype=torch.int64))
    assert by_formula(spec) == pytest.approx(expected, rel=CLOSE)
    assert hf.flops_per_sample(built, 48) == pytest.approx(expected, rel=1e-6)


def test_experts_are_not_counted_and_the_output_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    with torch.device("meta"):
        built = hf.build(HfModel(config={"model_type": "mixtral", **HF, "num_key_value_heads": 2, "num_local_experts": 2}, context=16))
    assert hf.flops_per_sample(built, 16) is None
    assert "no MFU: what mixtral computes is not counted: torch does not count the products of experts" in capsys.readouterr().out


@pytest.mark.parametrize("own", [{"entrypoint": "task:make"}, {"script": {"path": "train.py"}, "training": None}])
def test_what_the_spec_does_not_tell_has_no_figure(own: dict[str, Any]) -> None:
    assert model_flops(factories.job_spec(model=None, data=None, **own)) is None
    assert flops_of(HfModel(path="/models/mine"), None) is None
