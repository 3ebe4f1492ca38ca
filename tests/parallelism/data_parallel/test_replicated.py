"""Gradients and buffers of plain replicas."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.apply import parallelize
from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.options import ParallelizeOptions
from paceline.parallelism.plan import MicroBatchAssignment, assign_evenly, degrees
from paceline.parallelism.wrapped import SingleProcess, Wrapped, average_buffers
from paceline.training.link import RankPlace
from tests.ranks import run_ranks
from tests.release_only import AT_LENGTH

MICRO_BATCHES = 5
CPU = torch.device("cpu")


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def gradients(world: RankPlace) -> list[list[float]]:
    """Return the gradients of the mean over five micro-batches, assigned to the ranks in turn."""
    group, model = join(world, GroupAborter()), make_model()
    assignment = assign_evenly(MICRO_BATCHES, world.world_size, world.rank)
    wrapped = parallelize(model, degrees("ddp", world.world_size), CPU, group, reproducible=False)
    wrapped.begin_step(assignment, {})
    for index in assignment.own:
        inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(index))
        with wrapped.accumulate(index, final=index == assignment.own[-1]):
            (wrapped.module(inputs).square().mean() / MICRO_BATCHES).backward()
    assert 0 <= wrapped.finish_step() < 60
    result = [parameter.grad.flatten().tolist() for parameter in model.parameters() if parameter.grad is not None]
    del wrapped
    group.close()
    return result


def is_let_go(world: RankPlace) -> bool:
    """Whether nothing holds torch's wrapper of a model that was trained with, once ours is dropped."""
    group, model = join(world, GroupAborter()), make_model()
    wrapped = parallelize(model, degrees("ddp", world.world_size), CPU, group, reproducible=False)
    wrapped.begin_step(assign_evenly(world.world_size, world.world_size, world.rank), {})
    with wrapped.accumulate(world.rank, final=True):
        wrapped.module(torch.ones(3, 4)).square().mean().backward()
    wrapped.finish_step()
    module = weakref.ref(wrapped.module)
    del wrapped
    gc.collect()
    group.close()
    return module() is None


def test_a_dropped_model_takes_the_buckets_and_the_threads_of_its_group_with_it() -> None:
    """torch's wrapper held its communication hook, and by it the model: each generation left its buckets, sockets and threads behind."""
    assert run_ranks(is_let_go, 2) == [True, True]


def test_shares_may_be_uneven() -> None:
    (alone,) = run_ranks(gradients, 1)
    for rank in [each for size in ((2, 3) if AT_LENGTH else (3,)) for each in run_ranks(gradients, size)]:
        for expected, got in zip(alone, rank, strict=True):
            assert got == pytest.approx(expected, abs=1e-6)


class PartlyUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = make_model(), nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.used(inputs)
        return output


def run_pass(wrapped: Wrapped, assignment: MicroBatchAssignment, step: int, index: int, *, final: bool) -> None:
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(10 * step + index))
    with wrapped.accumulate(index, final=final):
        (wrapped.module(inputs).square().mean() / assignment.micro_batches).backward()


def gradients_of_steps(world: RankPlace, micro_batches: int) -> list[list[float]]:
    """Return the gradients of three steps of a job with a static graph, with a trial before the second that exchanges nothing."""
    group, model = join(world, GroupAborter()), PartlyUsed()
    assignment = assign_evenly(micro_batches, world.world_size, world.rank)
    choices = ParallelizeOptions(communication=CommunicationOptions(static_graph=True))
    wrapped = parallelize(model, degrees("ddp", world.world_size), CPU, group, reproducible=False, choices=choices)
    result = []
    for step in range(3):
        if step == 1:
            wrapped.begin_step(assignment, {})
            run_pass(wrapped, assignment, step, 0, final=False)
        model.zero_grad()
        wrapped.begin_step(assignment, {})
        for index in assignment.own:
            run_pass(wrapped, assignment, step, index, final=index == assignment.own[-1])
        wrapped.finish_step()
        result.append([value for each in model.used.parameters() if each.grad is not None for value in each.grad.flatten().tolist()])
    del wrapped
    group.close()
    return result


@pytest.mark.parametrize("micro_batches", [2, 3, 4])
def test_a_static_graph_takes_several_micro_batches_a_rank_and_parameters_that_are_never_used(micro_batches: int) -> None:
    (alone,) = run_ranks(gradients_of_steps, 1, micro_batches)
    for rank in run_ranks(gradients_of_steps, 2, micro_batches):
        for expected, got in zip(alone, rank, strict=True):
            assert got == pytest.approx(expected, abs=1e-6)


def running_mean(world: RankPlace) -> float:
    group, model = join(world, GroupAborter()), nn.BatchNorm1d(1, momentum=1.0)
    model(torch.full((4, 1), float(world.rank)))
    average_buffers(model, group)
    group.close()
    assert isinstance(model.running_mean, torch.Tensor)
    return model.running_mean.item()


def test_running_statistics_are_averaged_over_the_ranks() -> None:
    assert run_ranks(running_mean, 3) == [1.0, 1.0, 1.0]


def unfrozen(world: RankPlace) -> list[list[float]]:
    """The gradients of a second step, before which the first layer was unfrozen and the last one frozen."""
    group, model = join(world, GroupAborter()), make_model()
    first, last = model[0].requires_grad_(False), model[2]
    wrapped = parallelize(model, degrees("ddp", world.world_size), CPU, group, reproducible=False)
    for step in range(2):
        if step:
            first.requires_grad_(True)
            last.requires_grad_(False)
        model.zero_grad()
        wrapped.begin_step(assign_evenly(world.world_size, world.world_size, world.rank), {})
        with wrapped.accumulate(world.rank, final=True):
            wrapped.module(torch.full((1, 4), float(world.rank))).sum().backward()
        wrapped.finish_step()
    result = [parameter.grad.flatten().tolist() for parameter in model.parameters() if parameter.grad is not None]
    del wrapped
    group.close()
    return result


def test_parameters_that_are_unfrozen_later_have_the_gradients_of_all_ranks() -> None:
    first, second = run_ranks(unfrozen, 2)
    assert len(first) == 2
    assert first == second


def averaged(world: RankPlace) -> tuple[int, list[float]]:
    """A cache that has grown as far as this rank's longest batch, and a mask of the least number of its type."""
    group, model = join(world, GroupAborter()), nn.Module()
    model.register_buffer("cache", torch.zeros(5 + world.rank), persistent=False)
    model.register_buffer("mask", torch.tensor([0.0, torch.finfo(torch.float32).min]))
    average_buffers(model, group)
    group.close()
    return len(model.get_buffer("cache")), model.get_buffer("mask").tolist()


def test_caches_and_masks_stay_as_they_are_on_each_rank() -> None:
    mask = [0.0, torch.finfo(torch.float32).min]
    assert run_ranks(averaged, 3) == [(5, mask), (6, mask), (7, mask)]


def test_alone_nothing_is_wrapped() -> None:
    model = make_model()
    wrapped = parallelize(model, degrees("ddp", 1), CPU, SoloGroup(), reproducible=False)
    assert isinstance(wrapped, SingleProcess)
    assert wrapped.module is model
    assert wrapped.finish_step() == 0.0
