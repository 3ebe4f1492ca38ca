"""Models of transformers over the tensor axis: what is refused where, and jobs of them. That they train as one process does:
`parallelism/tensor_context/test_parity_hf.py`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError

from paceline.parallelism.tensor_context.shard_model import CannotShardError
from paceline.training.models.hf import model as hf
from paceline.training.models.hf.config import HfModel
from paceline.training.models.hf.limits import WITHOUT_PLAN, why_not_sharded
from paceline.training.models.hf.shard import tensor_plan
from tests import factories
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

WITHOUT = "transformers is not installed"
SIZES = {"vocab_size": 256, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 4}
LLAMA: dict[str, Any] = {"model_type": "llama", **SIZES, "num_key_value_heads": 2, "tie_word_embeddings": True}
MIXTRAL = {"model_type": "mixtral", **SIZES, "num_key_value_heads": 2, "num_local_experts": 2}
COHERE = {"model_type": "cohere", **SIZES, "use_qk_norm": True}


def job(model: dict[str, Any], **parallelism: Any) -> None:
    factories.job_spec(model={"kind": "hf", **model}, data={"kind": "stdlib_text"}, parallelism=parallelism, resources={"nodes": 4})


@pytest.mark.parametrize(
    ("config", "parallelism", "reason"),
    [
        (LLAMA, {"tensor": 4}, r"num_key_value_heads=2 does not divide by tensor=4; this model can be cut into tensor=1 or 2"),
        ({"model_type": "mistral", "vocab_size": 32_001}, {"tensor": 2}, r"vocab_size=32001 does not divide by tensor=2; .* tensor=1 "),
        ({"model_type": "qwen2", "intermediate_size": 23}, {"tensor": 2}, r"intermediate_size=23 does not divide by tensor=2"),
        (
            {"model_type": "new", "num_attention_heads": 3},
            {"tensor": 2},
            r"num_attention_heads=3 does not divide by tensor=2; .* tensor=1 or 3",
        ),
        (
            LLAMA | {"attention_dropout": 0.1},
            {"tensor": 2},
            r"attention_dropout=0\.1 with tensor=2 is not offered: .* set attention_dropout to 0",
        ),
        ({"model_type": "gpt2"}, {"tensor": 2}, r"transformers has none for gpt2; leave tensor at 1, or use fsdp"),
        (LLAMA, {"context": 2}, r"context=2 is for model gpt; models of transformers attend to whole sequences: leave it at 1"),
    ],
)
def test_what_the_configuration_tells_is_refused_at_submit(config: dict[str, Any], parallelism: dict[str, int], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        job({"config": config}, **parallelism)


def test_what_only_a_rank_can_tell_is_not() -> None:
    job({"config": LLAMA}, tensor=2)
    job({"config": {"model_type": "new"}}, tensor=2)
    job({"path": "/models/mine"}, tensor=2)


def test_families_without_a_plan_are_those_of_the_package() -> None:
    transformers = pytest.importorskip("transformers", reason=WITHOUT)
    for family in WITHOUT_PLAN:
        config = transformers.AutoConfig.for_model(family)
        assert not config.base_model_tp_plan, family


def on_meta(config: dict[str, Any]) -> torch.nn.Module:
    pytest.importorskip("transformers", reason=WITHOUT)
    with torch.device("meta"):
        return hf.build(HfModel(config=config, context=16))


@pytest.mark.parametrize(
    ("config", "tensor", "reason"),
    [
        (MIXTRAL, 2, r"tensor=2 of mixtral: its plan has model\.layers\.0\.mlp\.experts as moe_tp_experts, which is not offered; .* fsdp"),
        (LLAMA, 3, r"tensor=3 of llama: model\.embed_tokens has 256 places, which do not divide"),
        (COHERE, 2, r"its plan says nothing of model\.layers\.0\.self_attn\.q_norm, which stands between cut matrices"),
        ({"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 2}, 2, r"transformers has none for gpt2"),
    ],
)
def test_what_only_a_rank_can_tell_it_says(config: dict[str, Any], tensor: int, reason: str) -> None:
    with pytest.raises(CannotShardError, match=reason):
        tensor_plan(on_meta(config), tensor)


def test_a_configuration_with_all_its_values_is_refused_in_the_same_words() -> None:
    config: Any = on_meta(LLAMA).config
    assert why_not_sharded(config.to_dict(), 2) is None
    assert why_not_sharded(config.to_dict(), 4) == why_not_sharded(LLAMA, 4)


def training(**changes: Any) -> dict[str, Any]:
    document = tiny_gpt(steps=8, generate_tokens=5) | {"model": {"kind": "hf", "config": LLAMA, "context": 16}, "reproducible": False}
    return document | {"checkpoint": {"every_steps": 4}} | changes


def test_a_job_cut_over_two_ranks_goes_on_in_one(make_job: MakeJob) -> None:
    """Its checkpoint has whole tensors; evaluations and the text at the end are those of one process, too."""
    cut = training(parallelism={"tensor": 2}, resources={"nodes": 2})
    straight, halves = make_job(training(), "straight").run()[0], make_job(cut, "cut")
    ends = halves.run(2)
    assert [end.exit_code for end in ends] == [0, 0], ends[0].output + ends[1].output
    for name in ("loss", "gradient_norm", "eval_loss"):
        assert ends[0].curve(name) == pytest.approx(straight.curve(name), rel=1e-4)
    assert [event["text"] for event in ends[0].events_of("sample")] == [event["text"] for event in straight.events_of("sample")]
    (halfway,) = halves.checkpoints.glob("step-4.*")
    (alone,) = make_job(training(), "alone").run(1, restore_from=(str(halfway),), restore_required=True)
    assert alone.exit_code == 0, alone.output
    assert alone.curve("loss") == pytest.approx({step: loss for step, loss in straight.curve("loss").items() if step > 4}, rel=1e-4)
