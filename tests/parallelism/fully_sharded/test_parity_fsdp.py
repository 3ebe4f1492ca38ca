"""Fully sharded training must give the numbers of one process: on the same global batches, over 20 steps, with the same dropout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from paceline.parallelism.apply import refuse_ties_between
from paceline.parallelism.fully_sharded.sharding import require_dimensions
from paceline.parallelism.tensor_context.shard_model import CannotShardError
from tests.parallelism.parity import assert_parity, tiny_task
from tests.training.specs import tiny_gpt, tiny_resnet, write_batches

FSDP = {"strategy": "fsdp"}


def gpt(dropout: float = 0.0, **training: Any) -> dict[str, Any]:
    """Two blocks, tied embeddings."""
    document = tiny_gpt(dropout=dropout, **training)
    return document | {"model": document["model"] | {"layers": 2}}


@pytest.mark.parametrize("world_size", [2, 4])
def test_a_tied_gpt_with_dropout(world_size: int) -> None:
    assert_parity(gpt(dropout=0.1), world_size, FSDP)


def test_uneven_shares_and_an_uneven_last_micro_batch() -> None:
    """Five micro-batches on two ranks, the last one of one sample: the second rank computes a dummy."""
    assert_parity(gpt(global_batch_size=9, micro_batch_size=2), 2, FSDP)


@pytest.mark.parametrize("plan", [{"reshard_after_forward": False}, {"cpu_offload": True}])
def test_other_ways_to_keep_parameters(plan: dict[str, Any]) -> None:
    assert_parity(gpt(), 2, FSDP | plan)


@pytest.mark.parametrize("plan", [{"replicate": 2}, {"shard": 2, "reshard_after_forward": False}])
def test_hybrid_shards_on_two_by_two_ranks(plan: dict[str, Any]) -> None:
    assert_parity(gpt(dropout=0.1), 4, FSDP | plan)


@pytest.mark.parametrize("ranks", [2, 4])
def test_shards_with_gradients_in_the_fixed_tree(ranks: int) -> None:
    """Five micro-batches are three passes, the last one of a single micro-batch; on four ranks a replica has one of them."""
    document = gpt(dropout=0.1, global_batch_size=9, micro_batch_size=2) | {"reproducible": True}
    assert_parity(document, ranks, FSDP | {"shard": 2})


def test_frozen_and_unused_parameters_in_the_fixed_tree() -> None:
    assert_parity(tiny_task() | {"reproducible": True}, 4, FSDP | {"shard": 4})


@pytest.mark.parametrize("least_in_unit", [6_000, 1_000_000_000])
def test_blocks_that_share_a_unit_and_a_root_that_has_all(least_in_unit: int) -> None:
    assert_parity(gpt(), 2, FSDP, least_in_unit=least_in_unit)


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_activations_that_are_computed_again(mode: str) -> None:
    assert_parity(gpt(dropout=0.1), 2, FSDP | {"activation_checkpointing": mode})


def test_frozen_and_unused_parameters_and_parts_smaller_than_the_world() -> None:
    """Vectors of three on four ranks: one holds nothing of them."""
    assert_parity(tiny_task(), 4, FSDP)


@pytest.mark.parametrize("make", ["make_tied_task", "make_sharing_task"])
def test_weights_that_blocks_share_stay_one_parameter(make: str) -> None:
    """Each block sharded a copy of its own: an error of torch's."""
    assert_parity(tiny_task() | {"entrypoint": f"tests.parallelism.parity:{make}"}, 2, FSDP)


def test_weights_that_are_stored_channels_last() -> None:
    """FSDP does not support non-contiguous parameters yet."""
    assert_parity(tiny_task() | {"entrypoint": "tests.parallelism.parity:make_channels_last_task"}, 2, FSDP)


def test_a_scalar_parameter_is_refused_by_its_name() -> None:
    """It was an exception of torch's, met again in each restart."""
    model = nn.Linear(3, 3)
    require_dimensions(model)
    model.register_parameter("logit_scale", nn.Parameter(torch.tensor(2.66)))
    with pytest.raises(CannotShardError, match=r"logit_scale is a scalar, .* torch.ones\(1\).*, or train with ddp"):
        require_dimensions(model)


def test_stages_of_one_rank_that_share_a_weight_are_refused_before_each_shards_a_copy() -> None:
    first, last = nn.Linear(3, 3), nn.Linear(3, 3)
    stages = [nn.Sequential(first), nn.Sequential(nn.Tanh(), last)]
    refuse_ties_between(stages)
    last.weight = first.weight
    with pytest.raises(CannotShardError, match=r"share the parameter 1.weight of shape \[3, 3\].* use one stage on each rank"):
        refuse_ties_between(stages)


def test_running_statistics(tmp_path: Path) -> None:
    """Averaged over the ranks where they are read, as with plain DDP: a rank's moving average is over its own micro-batches. At a rate of 0.1
    rounding grows a hundredfold in the last five of the 20 steps."""
    write_batches(tmp_path)
    gently = {"kind": "sgd", "lr": 0.02, "nesterov": True}
    document = tiny_resnet(tmp_path) | {"fault_tolerance": {"recovery": "restart"}, "optimizer": gently}
    assert_parity(document, 2, FSDP, statistics=False)


def test_losses_in_bf16_stay_within_its_rounding() -> None:
    """Parameters are gathered in bf16, so that what is between matrix products is rounded too, to 8 bits: losses were seen 0.06 % apart, gradient
    norms 0.3 %, and one of them 12 %."""
    assert_parity(gpt() | {"precision": "bf16"}, 2, FSDP, relative=5e-3, losses_only=True)
