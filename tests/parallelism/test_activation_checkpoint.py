"""Recomputed activations: less memory, the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.parallelism.activation_checkpoint import checkpoint_activations
from paceline.parallelism.blocks import blocks_of, units
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.model import build
from tests.parallelism.parity import train
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt, tiny_resnet, write_batches

STEPS = 4


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.passes = nn.Linear(4, 4), nn.BatchNorm1d(4), 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += 1
        hidden: Tensor = self.norm(torch.tanh(self.layer(inputs)))
        return hidden


@pytest.mark.parametrize("mode", ["full", "selective"])
def test_a_block_is_computed_again_in_backward_and_counts_once_in_running_statistics(mode: Any) -> None:
    torch.manual_seed(0)
    block, inputs = Counting(), torch.randn(8, 4)
    expected, passes = Counting(), []
    expected.load_state_dict(block.state_dict())
    for model in (expected, block):
        if model is block:
            checkpoint_activations([model], mode)
            checkpoint_activations([model], mode)  # again, as in the next generation
        model(inputs).square().sum().backward()
        passes.append(model.passes)
    assert passes == [1, 2]
    for name, value in expected.state_dict().items():
        assert torch.equal(block.state_dict()[name], value), name
    assert all(torch.equal(one.grad, other.grad) for one, other in zip(block.parameters(), expected.parameters(), strict=True))  # type: ignore[arg-type]


def saved_bytes(mode: Any) -> int:
    """Return the bytes that autograd keeps from forward to backward, without parameters."""
    torch.manual_seed(0)
    model, kept = build(GptModel(layers=2, dim=32, heads=2, context=64)), {}
    checkpoint_activations(blocks_of(model), mode)
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(torch.zeros(2, 64, dtype=torch.long))
    assert output.requires_grad
    return sum(kept.values())


def test_fewer_activations_are_kept() -> None:
    assert saved_bytes("full") < saved_bytes("none") / 3


def test_blocks_are_found_by_how_a_model_is_built() -> None:
    gpt = build(GptModel(layers=3, dim=16, heads=2))
    assert blocks_of(gpt) == list(gpt.blocks)
    nested = nn.Sequential(nn.ModuleDict({"stages": nn.ModuleList([nn.ModuleList([nn.Linear(2, 2)]), nn.Linear(3, 3)])}))
    assert [block.weight.numel() for block in blocks_of(nested) if isinstance(block, nn.Linear)] == [4, 9]
    plain = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 4))
    assert blocks_of(plain) == [plain[0], plain[2]]
    assert blocks_of(nn.Linear(2, 2)) == []


def test_a_block_that_a_model_uses_several_times_is_sharded_once() -> None:
    shared = nn.Linear(2, 2)
    assert blocks_of(nn.Sequential(nn.ModuleList([shared] * 4))) == [shared]


def test_small_blocks_share_a_unit_and_the_rest_is_left_to_the_root() -> None:
    blocks = [nn.Linear(10, 10, bias=False) for _ in range(5)]
    assert units(blocks, 200) == [blocks[0:2], blocks[2:4]]
    assert units(blocks, 1) == [[block] for block in blocks]
    assert units(blocks, 1000) == []


@pytest.mark.parametrize(("strategy", "world_size", "reproducible"), [("single", 1, True), ("single", 1, False), ("ddp", 2, True)])
def test_training_is_the_same_to_the_last_bit(tmp_path: Path, strategy: str, world_size: int, reproducible: bool) -> None:
    write_batches(tmp_path)
    plans = [{"strategy": strategy, "activation_checkpointing": mode} for mode in ("none", "full", "selective")]
    for document in (tiny_gpt(dropout=0.1), tiny_resnet(tmp_path)):
        spec = document | {"resources": {"nodes": world_size}, "reproducible": reproducible}
        found = [run_ranks(train, world_size, spec | {"parallelism": plan}, 1, STEPS)[0] for plan in plans]
        assert found[0] == found[1] == found[2]
