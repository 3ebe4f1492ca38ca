"""A model over tensor and context axes must give the numbers of one process, whatever else shards or replicates it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.parallelism.parity import assert_parity
from tests.training.specs import tiny_gpt

DDP: dict[str, Any] = {"strategy": "ddp"}
FSDP: dict[str, Any] = {"strategy": "fsdp"}
#: Losses, where operands of matrix products are rounded to eight bits, on parts of the matrices.
BF16 = 5e-3


def gpt(dropout: float = 0.1, *, tied: bool = True, **training: Any) -> dict[str, Any]:
    """Two blocks. Adam divides a gradient by its own size; where that is nothing but rounding, only a larger epsilon keeps it small."""
    document = tiny_gpt(dropout=dropout, **training)
    return document | {
        "model": document["model"] | {"layers": 2, "heads": 4, "tied_embeddings": tied},
        "optimizer": {"kind": "adamw", "lr": 1e-3, "eps": 1e-6},
    }


@pytest.mark.slow("the first steps of tensor parallelism fill DTensor's caches on each rank")
@pytest.mark.parametrize("axes", [{"tensor": 2}, {"context": 2}])
@pytest.mark.parametrize("tied", [True, False])
def test_one_axis_with_dropout_and_uneven_batches(axes: dict[str, int], tied: bool) -> None:
    """Five micro-batches, the last one of one sample."""
    assert_parity(gpt(tied=tied, global_batch_size=9), 2, DDP | axes)


@pytest.mark.parametrize("axes", [{"tensor": 4}, {"context": 4}, {"context": 2, "tensor": 2}])
def test_axes_on_four_ranks(axes: dict[str, int]) -> None:
    document = gpt()
    assert_parity(document | {"model": document["model"] | {"context": 32}}, 4, DDP | axes)


@pytest.mark.slow("the first steps of tensor parallelism fill DTensor's caches on each rank")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("axes", [{"tensor": 2}, {"context": 2}])
def test_replicas_and_shards_with_uneven_shares(strategy: str, axes: dict[str, int]) -> None:
    """Five micro-batches for two data ranks: the second one computes a dummy."""
    assert_parity(gpt(global_batch_size=9), 4, {"strategy": strategy, **axes})


@pytest.mark.parametrize("axes", [{"shard": 2, "tensor": 2}, {"shard": 2, "context": 2, "tensor": 2}])
def test_products_on_eight_ranks(axes: dict[str, int]) -> None:
    """The first plan has two replicas of the shards."""
    assert_parity(gpt(), 8, FSDP | axes)


@pytest.mark.slow("the first steps of tensor parallelism fill DTensor's caches on each rank")
@pytest.mark.parametrize("mode", ["full", "selective"])
@pytest.mark.parametrize("axes", [{"tensor": 2}, {"context": 2}])
def test_activations_that_are_computed_again(axes: dict[str, int], mode: str) -> None:
    assert_parity(gpt(), 2, DDP | axes | {"activation_checkpointing": mode})


def test_checkpointed_shards_that_keep_whole_parameters() -> None:
    plan = {"tensor": 2, "reshard_after_forward": False, "activation_checkpointing": "full"}
    assert_parity(gpt(), 4, FSDP | plan)


@pytest.mark.parametrize(("world_size", "plan"), [(2, DDP | {"tensor": 2}), (4, FSDP | {"tensor": 2})])
def test_frozen_parameters(world_size: int, plan: dict[str, Any]) -> None:
    frozen = ("embedding.weight", "blocks.0.attention_norm.weight", "blocks.1.attention.query.weight")
    assert_parity(gpt(), world_size, plan, frozen=frozen)


@pytest.mark.parametrize("axes", [{"tensor": 2}, {"context": 2}])
def test_bf16(axes: dict[str, int]) -> None:
    assert_parity(gpt() | {"precision": "bf16"}, 2, DDP | axes, relative=BF16, losses_only=True)
