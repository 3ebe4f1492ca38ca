"""What the page and the terminal call a job's plan."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.api.services.specs.job_words import strategy_of
from paceline.training.spec.job import JobSpec
from tests.training.specs import tiny_gpt


@pytest.mark.parametrize(
    ("plan", "ranks", "words"),
    [
        ({"strategy": "ddp"}, 4, "ddp"),
        ({"strategy": "ddp", "tensor": 2}, 2, "ddp, tensor 2"),
        ({"strategy": "ddp", "context": 2}, 4, "ddp, context 2 x replicate 2"),
        ({"strategy": "fsdp"}, 1, "fsdp, shard 1"),
        ({"strategy": "fsdp", "replicate": 2}, 4, "fsdp, shard 2 x replicate 2"),
        ({"strategy": "fsdp", "shard": 2, "tensor": 2}, 8, "fsdp, tensor 2 x shard 2 x replicate 2"),
        ({"strategy": "fsdp", "context": 2, "tensor": 2}, 8, "fsdp, tensor 2 x context 2 x shard 2"),
    ],
)
def test_the_axes_of_the_mesh_are_named_from_neighbours_outwards(plan: dict[str, Any], ranks: int, words: str) -> None:
    spec = JobSpec.model_validate(tiny_gpt(ranks) | {"parallelism": plan})
    assert strategy_of(spec, ranks) == words
