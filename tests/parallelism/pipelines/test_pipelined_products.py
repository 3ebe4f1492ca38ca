"""Pipelines whose stages are sharded over other axes must give the numbers of one process."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parallelism.parity import assert_parity
from tests.parallelism.tensor_context.test_parity import gpt

#: With dropout and tied embeddings; five micro-batches, the last one of one sample. Of two pipelines the second has one less.
UNEVEN = gpt(global_batch_size=9)
FSDP: dict[str, Any] = {"strategy": "fsdp"}


def in_stages(**plan: Any) -> dict[str, Any]:
    return {"pipeline": 2} | plan


@pytest.mark.parametrize(
    "plan", [{"tensor": 2}, {"context": 2}, FSDP, FSDP | {"reshard_after_forward": False, "pipeline_schedule": "gpipe"}]
)
def test_stages_in_parts_over_one_axis(plan: dict[str, Any]) -> None:
    assert_parity(UNEVEN, 4, in_stages(**plan))


@pytest.mark.parametrize("axes", [{"tensor": 2}, {"context": 2}])
def test_without_dropout_and_with_embeddings_of_their_own(axes: dict[str, int]) -> None:
    assert_parity(gpt(dropout=0.0, tied=False), 4, in_stages(**axes))


def test_cut_stages_whose_backward_is_split() -> None:
    assert_parity(gpt(), 4, in_stages(tensor=2, pipeline_schedule="zero_bubble_v"))


@pytest.mark.parametrize(
    "plan", [{"tensor": 2}, {"context": 2}, {"context": 2, "tensor": 2}, FSDP | {"tensor": 2}, FSDP | {"replicate": 2}]
)
def test_products_on_eight_ranks(plan: dict[str, Any]) -> None:
    """The first two products have replicas."""
    assert_parity(UNEVEN, 8, in_stages(**plan))
