"""Models of transformers, sharded by their own plan, must give the numbers of one process, whatever else shards or replicates them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parallelism.parity import assert_parity
from tests.training.specs import tiny_gpt

pytest.importorskip("transformers", reason="transformers is not installed")

DDP: dict[str, Any] = {"strategy": "ddp"}
FSDP: dict[str, Any] = {"strategy": "fsdp"}
SIZES = {
    "vocab_size": 256,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}
LLAMA = {"model_type": "llama", **SIZES, "attention_bias": True, "mlp_bias": True}
QWEN2 = {"model_type": "qwen2", **SIZES, "tie_word_embeddings": True, "pad_token_id": 97}  # "a" is no input of its own
QWEN3 = {"model_type": "qwen3", **SIZES, "head_dim": 6}  # norms of each rank's own heads
#: Queries, keys and values in one matrix, whose products are gathered; dropout where all ranks have everything.
PHI3 = {"model_type": "phi3", **SIZES, "resid_pdrop": 0.1, "embd_pdrop": 0.1, "pad_token_id": 0}
GEMMA2 = {"model_type": "gemma2", **SIZES, "head_dim": 4, "final_logit_softcapping": 5.0}  # something to do after the head; tied
GPT_NEOX = {"model_type": "gpt_neox", **SIZES, "hidden_dropout": 0.1}
del GPT_NEOX["num_key_value_heads"]  # heads have keys of their own


def hf(config: dict[str, Any], **training: Any) -> dict[str, Any]:
    """Adam divides a gradient by its own size; where that is nothing but rounding, only a larger epsilon keeps it small."""
    return tiny_gpt(**training) | {
        "model": {"kind": "hf", "config": config, "context": 16},
        "optimizer": {"kind": "adamw", "lr": 1e-3, "eps": 1e-5},
    }


@pytest.mark.slow("the first steps of tensor parallelism fill DTensor's caches on each rank")
@pytest.mark.parametrize("config", [LLAMA, QWEN2, QWEN3, PHI3, GEMMA2, GPT_NEOX], ids=lambda config: str(config["model_type"]))
def test_models_of_transformers_with_uneven_batches(config: dict[str, Any]) -> None:
    """Five micro-batches, the last one of one sample."""
    assert_parity(hf(config, global_batch_size=9), 2, DDP | {"tensor": 2})


@pytest.mark.parametrize("plan", [DDP, FSDP], ids=["replicas", "shards"])
@pytest.mark.parametrize("config", [QWEN2, QWEN3], ids=lambda config: str(config["model_type"]))
def test_models_of_transformers_with_uneven_shares(plan: dict[str, Any], config: dict[str, Any]) -> None:
    """Five micro-batches for two data ranks: the second one computes a dummy."""
    assert_parity(hf(config, global_batch_size=9), 4, plan | {"tensor": 2})


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_activations_of_transformers_that_are_computed_again(mode: str) -> None:
    assert_parity(hf(QWEN3), 2, DDP | {"tensor": 2, "activation_checkpointing": mode})


def test_models_of_transformers_in_bf16() -> None:
    assert_parity(hf(LLAMA) | {"precision": "bf16"}, 2, DDP | {"tensor": 2}, relative=5e-3, losses_only=True)
