"""`strategy="auto"` of a Trainer."""

from __future__ import annotations

import pytest
from torch import nn

from paceline.training.own_loop import trainer as trainers
from paceline.training.own_loop.strategy import choose, state_bytes
from paceline.training.own_loop.trainer import Trainer
from tests.launched import run_launched
from tests.training.own_loop.loops import Small

GIGABYTE = 1 << 30


@pytest.mark.parametrize(
    ("needed", "world_size", "name", "reason"),
    [
        (1, 1, "single", "nothing to divide"),
        (6 * GIGABYTE, 4, "ddp", "take 6.00 GiB, and each of 4 ranks has 6.00 GiB"),
        (6 * GIGABYTE + 9, 4, "fsdp", "a rank has only 6.00 GiB for them: 4 ranks hold a part each"),
    ],
)
def test_whole_models_as_long_as_their_state_leaves_room(needed: int, world_size: int, name: str, reason: str) -> None:
    choice = choose(needed, 10 * GIGABYTE + 10, world_size)
    assert choice.name == name
    assert reason in choice.reason


def test_a_frozen_parameter_has_neither_gradient_nor_state() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False).requires_grad_(False))
    assert state_bytes(model) == 16 * 4 * 4 + 16 * 4


def test_all_ranks_go_by_the_one_with_the_least_memory() -> None:
    assert run_launched(chosen_with_little_memory_on_rank_1, 2) == ["fsdp", "fsdp"]


def chosen_with_little_memory_on_rank_1() -> str:
    import os

    vars(trainers)["memory_of"] = lambda place, device: 100 if os.environ["RANK"] == "1" else GIGABYTE
    with Trainer(Small(), strategy="auto") as trainer:
        assert trainer.strategy is not None
        return trainer.strategy.name
