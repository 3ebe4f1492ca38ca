"""A state is read by names that are remembered, and only where they are still right."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from paceline.training.saving import state_index
from paceline.training.saving.shards import Tensors, tensors_of
from paceline.training.saving.state_index import StateIndex, is_same


@dataclass
class Training:
    model: nn.Module
    optimizer: torch.optim.Optimizer

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.ones(2, 4)).sum().backward()
        self.optimizer.step()


class Tied(nn.Module):
    """Two layers of one weight, normalized between."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)
        self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.norm(self.first(x)))
        return out


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    decayed = [each for each in model.parameters() if each.ndim > 1]
    rest = [each for each in model.parameters() if each.ndim <= 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=1e-3)


def made(optimizer: Callable[[nn.Module], torch.optim.Optimizer] = adamw) -> Training:
    torch.manual_seed(0)
    model = Tied()
    training = Training(model, optimizer(model))
    training.step()
    return training


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each search for names."""
    found: list[int] = []

    def counted(state: Any) -> Tensors:
        found.append(1)
        return tensors_of(state)

    monkeypatch.setattr(state_index, "tensors_of", counted)
    return found


def test_a_state_is_searched_once_and_read_as_it_is_now(searches: list[int]) -> None:
    index, training = StateIndex(), made()
    for lr in (0.1, 0.2, 0.3):
        training.optimizer.param_groups[0]["lr"] = lr
        assert is_same(index.tensors_of(training), tensors_of(training))
        training.step()
    training.optimizer = adamw(training.model)  # other tensors, of the same names
    training.step()
    training.model.norm.running_mean = torch.full((4,), 5.0)  # type: ignore[union-attr]
    assert is_same(index.tensors_of(training), tensors_of(training))
    assert len(searches) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda training: training.model.register_buffer("more", torch.zeros(2)),
        lambda training: training.optimizer.add_param_group({"params": [nn.Parameter(training.model.first.weight.detach().clone())]}),
        lambda training: training.optimizer.param_groups[0].update(extra=1),
        lambda training: setattr(training, "optimizer", torch.optim.SGD(training.model.parameters(), 0.1, momentum=0.9)),
    ],
    ids=["buffer", "group", "setting", "optimizer"],
)
def test_another_form_is_searched_anew(change: Callable[[Training], object], searches: list[int]) -> None:
    index, training = StateIndex(), made()
    index.tensors_of(training)
    change(training)
    if any(parameter.grad is None for group in training.optimizer.param_groups for parameter in group["params"]):
        training.model.extra = training.optimizer.param_groups[-1]["params"][0]  # so that torch finds a name for it
    training.optimizer.step()
    assert is_same(index.tensors_of(training), tensors_of(training))
    assert len(searches) == 2


def test_a_replaced_parameter_is_another_one_though_its_address_is_the_same(searches: list[int]) -> None:
    index, training = StateIndex(), made()
    index.tensors_of(training)
    training.model.first.bias = nn.Parameter(torch.zeros(4))  # type: ignore[union-attr]
    training.optimizer = adamw(training.model)
    training.step()
    assert is_same(index.tensors_of(training), tensors_of(training))
    assert len(searches) == 2


@pytest.mark.parametrize(
    "optimizer", [lambda model: torch.optim.SGD(model.parameters(), lr=0.1), lambda model: torch.optim.Adafactor(model.parameters())]
)
def test_every_optimizer_is_read_rightly_whether_it_keeps_a_state_or_not(optimizer: Callable[[nn.Module], torch.optim.Optimizer]) -> None:
    index, training = StateIndex(), made(optimizer)
    for _ in range(3):
        assert is_same(index.tensors_of(training), tensors_of(training))
        training.step()


def test_a_hook_that_changes_a_state_dictionary_is_heard() -> None:
    index, training = StateIndex(), made()

    def double(module: nn.Module, content: dict[str, Any], prefix: str, metadata: object) -> None:
        content["first.bias"] = content["first.bias"] * 2

    training.model.register_state_dict_post_hook(double)
    for _ in range(2):
        read = index.tensors_of(training)["model"]
        assert torch.equal(read["first.bias"], 2 * training.model.get_parameter("first.bias"))
        training.step()


def test_nothing_is_kept_alive() -> None:
    index, training = StateIndex(), made()
    index.tensors_of(training)
    parameter = weakref.ref(training.model.first.weight)  # type: ignore[union-attr]
    del training
    gc.collect()
    assert parameter() is None
