"""Sizes of transformers' models from their configurations alone, held to what the package builds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.parallelism.model_shape import NumberFormats
from paceline.training.models.catalog import parameter_count, shape_of
from paceline.training.models.hf import model as hf
from paceline.training.models.hf.config import HfModel
from paceline.training.models.hf.sizes import FAMILIES

TINY = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4}
BUILT = [
    *({"model_type": family} for family in FAMILIES),  # all of it from defaults
    {"model_type": "llama", **TINY, "num_key_value_heads": 2, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    {"model_type": "llama", **TINY, "head_dim": 16, "num_key_value_heads": None},
    {"model_type": "mistral", **TINY, "num_key_value_heads": 1},
    {"model_type": "qwen2", **TINY, "num_key_value_heads": 2, "tie_word_embeddings": True},
    {"model_type": "qwen3", **TINY, "num_key_value_heads": 2, "head_dim": 12, "attention_bias": True},
    {"model_type": "gpt2", "n_embd": 32, "n_inner": 100, "n_layer": 2, "n_head": 2, "n_positions": 20, "tie_word_embeddings": False},
    {"model_type": "gpt2", "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "max_position_embeddings": 40},
]


@pytest.mark.parametrize("config", BUILT, ids=lambda config: f"{config['model_type']}-{len(config)}")
def test_the_count_is_that_of_the_built_model(config: dict[str, Any]) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    spec = HfModel(config=config, context=16)
    with torch.device("meta"):
        model = hf.build(spec)
    built = sum(parameter.numel() for parameter in model.parameters())
    shape = shape_of(spec, None, NumberFormats())
    assert parameter_count(spec) == built
    assert shape is None or shape.parameters == built


@pytest.mark.parametrize("family", FAMILIES)
def test_of_which_families_the_planner_knows_what_they_keep(family: str) -> None:
    assert (shape_of(HfModel(config={"model_type": family, **TINY}), None, NumberFormats()) is not None) == (family != "gpt2")


@pytest.mark.parametrize(
    "unusual", [{"hidden_act": "gelu"}, {"attention_dropout": 0.1}, {"attn_implementation": "eager"}, {"sliding_window": 16}]
)
def test_what_computes_otherwise_keeps_nobody_knows_what(unusual: dict[str, Any]) -> None:
    spec = HfModel(config={"model_type": "mistral", **TINY, **unusual}, context=32)
    assert parameter_count(spec) is not None
    assert shape_of(spec, None, NumberFormats()) is None


@pytest.mark.parametrize(("window", "known"), [({}, False), ({"sliding_window": None}, True), ({"sliding_window": 8192}, True)])
def test_mistral_looks_back_as_far_as_its_default(window: dict[str, Any], known: bool) -> None:
    spec = HfModel(config={"model_type": "mistral", **TINY, **window}, context=5000)
    assert (shape_of(spec, None, NumberFormats()) is not None) == known


@pytest.mark.parametrize(
    "spec",
    [
        HfModel(path="/models/mine"),
        HfModel(config={"model_type": "mamba"}),
        HfModel(config={"model_type": "llama", "hidden_size": "32"}),
        HfModel(config={"model_type": "llama", "num_hidden_layers": 0}),
        HfModel(config={"model_type": "gpt2", "tie_word_embeddings": "yes"}),
    ],
)
def test_what_cannot_be_known_is_unknown(spec: HfModel) -> None:
    assert parameter_count(spec) is None
