"""Equal gradients and running statistics, to the last bit, on any number of ranks."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Any

import torch
from torch import nn

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.apply import parallelize
from paceline.parallelism.data_parallel.reproducible import Reproducible
from paceline.parallelism.plan import assign_evenly, degrees
from paceline.parallelism.running_statistics import RunningStatistics
from paceline.training.link import RankPlace
from paceline.training.optim.optimizers import build_optimizer
from paceline.training.schema.optimizer import AdamW
from tests.ranks import run_ranks
from tests.release_only import AT_LENGTH

MICRO_BATCHES = 6
STEPS = 3
CPU = torch.device("cpu")


def make_model() -> nn.Module:
    """A model with running statistics, two data types, a tied weight, an unused parameter and a frozen one."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(9, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 9), nn.Linear(9, 1, dtype=torch.float64))
    model[3].weight = model[0].weight  # type: ignore[union-attr]
    model.register_parameter("unused", nn.Parameter(torch.ones(3)))
    model.register_parameter("frozen", nn.Parameter(torch.ones(3), requires_grad=False))
    return model


def loss_of(wrapped: Any, step: int, index: int) -> torch.Tensor:
    inputs = torch.randn(5, 9, generator=torch.Generator().manual_seed(100 * step + index)) + index
    hidden: torch.Tensor = wrapped.module[:4](inputs)
    return wrapped.module[4](hidden.double()).square().mean() / MICRO_BATCHES  # type: ignore[no-any-return]


def trained(world: RankPlace) -> dict[str, list[float]]:
    group, model = join(world, GroupAborter()), make_model()
    assignment = assign_evenly(MICRO_BATCHES, world.world_size, world.rank)
    wrapped = parallelize(model, degrees("ddp", world.world_size), CPU, group, reproducible=True)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for step in range(STEPS):
        wrapped.begin_step(assignment, {})
        for index in assignment.own:
            with wrapped.accumulate(index, final=index == assignment.own[-1]):
                loss_of(wrapped, step, index).backward()  # type: ignore[no-untyped-call]
        wrapped.finish_step()
        gradients = {name: p.grad.flatten().tolist() for name, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
        optimizer.zero_grad()
    wrapped.sync_buffers()
    state = {name: value.flatten().tolist() for name, value in model.state_dict().items()}
    del wrapped
    group.close()
    return state | {f"gradient of {name}": values for name, values in gradients.items()}


def digest(values: dict[str, list[float]]) -> str:
    text = repr([(name, [float(value).hex() for value in part]) for name, part in sorted(values.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def test_parameters_gradients_and_statistics_have_the_same_bits_on_any_world() -> None:
    worlds = [run_ranks(trained, size) for size in ((1, 2, 3, 4, 5) if AT_LENGTH else (1, 3))]
    hashes = {digest(rank) for world in worlds for rank in world}
    assert len(hashes) == 1
    assert worlds[0][0]["1.num_batches_tracked"] == [STEPS]
    assert worlds[0][0]["frozen"] == worlds[0][0]["unused"] == [1.0, 1.0, 1.0]


def test_gradients_are_those_of_one_backward_over_everything() -> None:
    model, reference = make_model(), make_model()
    for one, reproducible in ((model, True), (reference, False)):
        wrapped = parallelize(one, degrees("single", 1), CPU, SoloGroup(), reproducible=reproducible)
        wrapped.begin_step(assign_evenly(MICRO_BATCHES, 1), {})
        for index in range(MICRO_BATCHES):
            with wrapped.accumulate(index, final=index == MICRO_BATCHES - 1):
                loss_of(wrapped, 0, index).backward()  # type: ignore[no-untyped-call]
        wrapped.finish_step()
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        if theirs.grad is not None:
            torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-6, rtol=1e-5)


def test_running_statistics_move_once_a_step_by_the_mean_over_micro_batches() -> None:
    model = nn.BatchNorm1d(1, momentum=0.5)
    wrapped = Reproducible(model, SoloGroup())
    wrapped.begin_step(assign_evenly(4, 1), {})
    for index in range(4):
        with wrapped.accumulate(index, final=index == 3):
            model(torch.full((2, 1), float(index))).sum().backward()
    wrapped.finish_step()
    assert model.running_mean is not None
    assert model.running_mean.tolist() == [0.5 * (0 + 1 + 2 + 3) / 4]
    assert model.num_batches_tracked == torch.tensor(1)


def test_alone_nothing_is_said_to_be_communication() -> None:
    model = nn.Linear(2, 1)
    wrapped = Reproducible(model, SoloGroup())
    wrapped.begin_step(assign_evenly(1, 1), {})
    with wrapped.accumulate(0, final=True):
        model(torch.ones(1, 2)).sum().backward()
    assert wrapped.finish_step() == 0.0


def test_buffers_that_nothing_changes_keep_their_bits_infinities_and_large_integers_too() -> None:
    model = nn.Module()
    constants = {"mask": torch.tensor([[0.0, float("-inf")]]), "limit": torch.tensor(float("inf")), "nothing": torch.tensor(float("nan"))}
    constants |= {"multiplier": torch.tensor(6364136223846793005), "flag": torch.tensor([True, False])}
    for name, value in constants.items():
        model.register_buffer(name, value.clone())
    statistics = RunningStatistics(model)
    statistics.begin_step()
    first, second = statistics.changes(2), statistics.changes(2)
    statistics.apply([one + other for one, other in zip(first, second, strict=True)], 2)
    for name, value in constants.items():
        torch.testing.assert_close(model.get_buffer(name), value, rtol=0, atol=0, equal_nan=True)


def test_a_causal_mask_in_a_buffer_stays_so_through_training() -> None:
    model = nn.Linear(2, 2)
    mask = torch.full((2, 2), float("-inf")).triu(1)
    model.register_buffer("mask", mask.clone())
    wrapped = Reproducible(model, SoloGroup())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        wrapped.begin_step(assign_evenly(1, 1), {})
        with wrapped.accumulate(0, final=True):
            loss = (model(torch.ones(2, 2)) + model.get_buffer("mask")).softmax(1).square().sum()
            loss.backward()
        wrapped.finish_step()
        optimizer.step()
        optimizer.zero_grad()
        assert torch.isfinite(loss)
    assert torch.equal(model.get_buffer("mask"), mask)


def test_a_model_in_another_memory_order_trains_to_the_same_losses() -> None:
    model = convolution().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    torch.testing.assert_close(losses_of(model, Reproducible(model, SoloGroup())), losses_of(convolution(), None), rtol=1e-5, atol=0)


def convolution() -> nn.Module:
    torch.manual_seed(0)
    return nn.Conv2d(3, 4, 3)


def losses_of(model: nn.Module, wrapped: Reproducible | None) -> list[float]:
    optimizer, losses = build_optimizer(AdamW(lr=0.01), model), []
    inputs = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    for _ in range(4):
        if wrapped:
            wrapped.begin_step(assign_evenly(1, 1), {})
        with wrapped.accumulate(0, final=True) if wrapped else contextlib.nullcontext():
            loss = model(inputs).square().mean()
            loss.backward()
        if wrapped:
            wrapped.finish_step()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
