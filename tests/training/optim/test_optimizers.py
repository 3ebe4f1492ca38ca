from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from paceline.training.optim.optimizers import build_optimizer, clip_gradients, learning_rate
from paceline.training.schema.optimizer import AdamW, Schedule, Sgd


def rates(schedule: Schedule, total: int) -> list[float]:
    return [learning_rate(1.0, schedule, step, total) for step in range(1, total + 1)]


def test_warm_up_is_a_line_that_reaches_the_peak_at_its_last_step() -> None:
    assert rates(Schedule(warmup_steps=4), 10)[:4] == [0.25, 0.5, 0.75, 1.0]


def test_cosine_ends_at_the_smallest_rate_and_never_rises_after_the_warm_up() -> None:
    curve = rates(Schedule(kind="cosine", warmup_steps=2, min_ratio=0.1), 50)
    assert curve[-1] == pytest.approx(0.1)
    assert curve[1:] == sorted(curve[1:], reverse=True)


def test_constant_stays() -> None:
    assert set(rates(Schedule(kind="constant"), 5)) == {1.0}


def test_a_warm_up_longer_than_the_run_is_cut_off() -> None:
    assert rates(Schedule(warmup_steps=100), 3) == [0.01, 0.02, 0.03]


def test_only_matrices_decay() -> None:
    optimizer = build_optimizer(AdamW(weight_decay=0.5), torch.nn.Linear(3, 2))
    assert [(group["params"][0].ndim, group["weight_decay"]) for group in optimizer.param_groups] == [(2, 0.5), (1, 0.0)]


@pytest.mark.parametrize("spec", [AdamW(lr=0.1), Sgd(lr=0.1)])
def test_a_step_goes_downhill(spec: AdamW | Sgd) -> None:
    model = torch.nn.Linear(3, 1, bias=False)
    torch.nn.init.ones_(model.weight)
    optimizer, inputs = build_optimizer(spec, model), torch.ones(4, 3)
    before = model(inputs).square().mean()
    before.backward()
    optimizer.step()
    assert model(inputs).square().mean() < before


def test_the_reported_norm_is_the_true_one_and_gradients_are_cut_to_the_limit() -> None:
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))]
    parameters[0].grad, parameters[1].grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    assert clip_gradients(parameters, 1.0).item() == pytest.approx(5.0)
    clipped = torch.cat([parameter.grad for parameter in parameters if parameter.grad is not None])
    assert clipped.norm().item() == pytest.approx(1.0, rel=1e-5)


def test_without_a_limit_the_norm_is_only_measured() -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.tensor([4.0])
    assert clip_gradients([parameter], None).item() == 4.0
    assert parameter.grad.item() == 4.0


def test_a_step_schedule_is_torchs() -> None:
    schedule = Schedule(kind="step", warmup_steps=2, step_size=3, gamma=0.5)
    assert rates(schedule, 10) == [0.5, 1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    assert rates(schedule, 10)[2:] == pytest.approx(of_torch(lambda made: torch.optim.lr_scheduler.StepLR(made, 3, 0.5), 8))
    assert rates(Schedule(kind="step", step_size=1), 3) == pytest.approx([1.0, 0.1, 0.01])


@pytest.mark.parametrize("growth", [1, 2])
def test_warm_restarts_are_torchs(growth: int) -> None:
    schedule = Schedule(kind="warm_restarts", cycle_steps=4, cycle_growth=growth, min_ratio=0.1)
    expected = of_torch(lambda made: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(made, 4, growth, eta_min=0.1), 20)
    assert rates(schedule, 20) == pytest.approx(expected)


def of_torch(make: Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler], steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    scheduler, found = make(optimizer), []
    for _ in range(steps):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"kind": "step"}, "kind=step needs step_size"),
        ({"kind": "warm_restarts", "cycle_growth": 2}, "kind=warm_restarts needs cycle_steps"),
        ({"kind": "cosine", "step_size": 3}, "step_size is for kind step, not cosine"),
        ({"kind": "step", "step_size": 3, "cycle_growth": 2}, "cycle_growth is for kind warm_restarts, not step"),
    ],
)
def test_a_schedule_has_the_fields_of_its_kind(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        Schedule(**fields)


def test_a_schedule_that_nodes_of_the_version_before_know_is_written_as_they_know_it() -> None:
    assert Schedule().model_dump() == {"kind": "cosine", "warmup_steps": 0, "min_ratio": 0.1}
