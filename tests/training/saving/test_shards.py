"""A state by name and back, whatever its optimizer is made of."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from paceline.training.optim.optimizers import build_optimizer
from paceline.training.saving.shards import put_tensors, tensors_of
from paceline.training.schema.optimizer import AdamW
from paceline.training.server_state import restricted


@dataclass
class Training:
    model: nn.Module
    optimizer: torch.optim.Optimizer


def trained(*sizes: int) -> Training:
    """A model without biases, one group for each of `sizes`: so many of its three weights. It has made one step."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3)))
    weights = iter(model.parameters())
    groups = [{"params": [next(weights) for _ in range(size)], "weight_decay": 0.1 * number} for number, size in enumerate(sizes)]
    training = Training(model, torch.optim.AdamW(groups, lr=0.1))
    step(training)
    return training


def step(training: Training) -> None:
    training.optimizer.zero_grad()
    training.model(torch.ones(1, 2)).sum().backward()
    training.optimizer.step()


@pytest.mark.parametrize("sizes", [(0, 3), (2, 0, 1), (3, 0), (0, 1, 0, 2, 0)], ids=str)
def test_an_optimizer_with_an_empty_group_can_be_loaded_again(sizes: tuple[int, ...]) -> None:
    training, fresh = trained(*sizes), trained(*sizes)
    step(training)
    put_tensors(fresh, copy.deepcopy(tensors_of(training)))
    assert [len(group["params"]) for group in fresh.optimizer.param_groups] == list(sizes)
    assert [group["weight_decay"] for group in fresh.optimizer.param_groups] == [0.1 * number for number in range(len(sizes))]
    step(training)
    step(fresh)
    for mine, theirs in zip(fresh.model.parameters(), training.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_parameter_servers_shard_of_matrices_alone_can_be_loaded_again() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    weight = next(model.parameters())
    training = Training(model, restricted(build_optimizer(AdamW(lr=0.1), model), {weight}))
    step(training)
    put_tensors(training, tensors_of(training))
    assert [len(group["params"]) for group in training.optimizer.param_groups] == [1, 0]
    assert training.optimizer.state[weight]["step"] == 1


def test_an_optimizer_keeps_nothing_of_parameters_of_which_nothing_was_saved() -> None:
    training = trained(3)
    first, *others = training.model.parameters()
    tensors = tensors_of(training)
    absent = [name for name in tensors["optimizer"] if name.startswith("state.0.")]
    for name in absent:
        del tensors["optimizer"][name]
    put_tensors(training, tensors)
    assert len(absent) == 3
    assert set(training.optimizer.state) == set(others)
    assert "state.0.weight.step" not in tensors_of(training)["optimizer"]
    step(training)
    assert training.optimizer.state[first]["step"] == 1


class Around(torch.optim.Optimizer):
    """Has the groups and the state of another optimizer, which nobody can set."""

    def __init__(self, base: torch.optim.Optimizer) -> None:
        self.base = base

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.base.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        return self.base.state

    def state_dict(self) -> dict[str, Any]:
        return self.base.state_dict()


def test_an_optimizer_around_another_one_is_saved() -> None:
    training = trained(3)
    wrapped = Training(training.model, Around(training.optimizer))
    assert tensors_of(wrapped)["optimizer"].keys() == tensors_of(training)["optimizer"].keys()
