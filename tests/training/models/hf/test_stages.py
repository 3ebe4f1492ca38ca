"""The chain of units of a model of transformers computes what the model does; a family that is not known is refused in words."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.parallelism.pipelines.chain import UnsplittableModelError, require_complete_units
from paceline.training.models.hf import model as hf
from paceline.training.models.hf.config import HfModel
from paceline.training.models.hf.limits import IN_STAGES
from paceline.training.models.hf.stages import units
from tests.parallelism.pipelines.test_parity_hf_stages import FAMILIES
from tests.parallelism.tensor_context.test_parity_hf import PHI3

pytest.importorskip("transformers", reason="transformers is not installed")
TOKENS = torch.arange(24).view(2, 12)


def build(config: dict[str, Any]) -> Any:
    torch.manual_seed(5)
    return hf.build(HfModel(config=config, context=16)).eval()


def test_every_family_that_is_taken_is_tried() -> None:
    assert {config["model_type"] for config in FAMILIES.values()} == IN_STAGES


@pytest.mark.parametrize("family", FAMILIES)
def test_the_units_one_after_another_are_the_model(family: str) -> None:
    model = build(FAMILIES[family])
    hidden = TOKENS
    chain = units(model)
    require_complete_units(model, chain)
    with torch.no_grad():
        for unit in chain:
            hidden = unit.run(hidden)
        assert torch.equal(hidden, model(TOKENS).logits)


def test_a_window_is_seen() -> None:
    """With one that is shorter than the sequence the last position does not see the first token."""
    model = build(FAMILIES["mistral"])
    other = TOKENS.clone()
    other[:, 0] += 1
    ends = []
    for tokens in (TOKENS, other):
        for unit in units(model)[:2]:  # one layer, since each further one sees further back
            tokens = unit.run(tokens)
        ends.append(tokens[:, -1])
    assert torch.equal(*ends)


def test_a_family_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        UnsplittableModelError, match=r"family phi3 may be cut into stages \(it does for gpt2, llama, mistral, qwen2, qwen3\)"
    ):
        units(build(PHI3))
