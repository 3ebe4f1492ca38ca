"""Models of transformers in stages must give the numbers of one process, whatever else shards or replicates the stages."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parallelism.parity import assert_parity
from tests.parallelism.tensor_context.test_parity_hf import LLAMA, QWEN2, QWEN3, hf

pytest.importorskip("transformers", reason="transformers is not installed")

#: A window that is shorter than the context, so that there is a mask.
MISTRAL = {**LLAMA, "model_type": "mistral", "sliding_window": 4}
for _unknown in ("attention_bias", "mlp_bias"):
    del MISTRAL[_unknown]
#: Tied, with dropout in embedding, attention and residuals; positions are a table.
GPT2 = {"model_type": "gpt2", "vocab_size": 256, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
#: One layer looks back over a window, the other over everything.
QWEN2_WINDOWS = QWEN2 | {"layer_types": ["sliding_attention", "full_attention"], "use_sliding_window": True, "sliding_window": 4}
FAMILIES = {"llama": LLAMA, "mistral": MISTRAL, "qwen2": QWEN2, "qwen2_windows": QWEN2_WINDOWS, "qwen3": QWEN3, "gpt2": GPT2}


@pytest.mark.parametrize("family", FAMILIES)
def test_models_of_transformers_in_stages(family: str) -> None:
    """Five micro-batches, the last one of one sample."""
    assert_parity(hf(FAMILIES[family], global_batch_size=9), 2, {"pipeline": 2})


@pytest.mark.parametrize("plan", [{}, {"strategy": "fsdp"}, {"tensor": 2}], ids=["replicas", "shards", "tensor"])
def test_stages_of_transformers_beside_another_axis(plan: dict[str, Any]) -> None:
    assert_parity(hf(QWEN2, global_batch_size=9), 4, {"pipeline": 2} | plan)


@pytest.mark.parametrize("schedule", ["interleaved_1f1b", "zero_bubble_v"])
def test_stages_of_transformers_under_another_schedule(schedule: str) -> None:
    assert_parity(hf(LLAMA), 2, {"pipeline": 2, "pipeline_schedule": schedule})


def test_recomputed_activations_of_stages_of_transformers() -> None:
    assert_parity(hf(GPT2), 2, {"pipeline": 2, "activation_checkpointing": "full"})
