"""Gradients reduced over ranks after the last backward, and their norm."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism.gradients import PartialGradientError, global_norm, reduce_partial_gradients, sum_gradients
from paceline.parallelism.mesh import axis_group_ranks, device_mesh
from paceline.parallelism.plan import Degrees
from paceline.training.link import RankPlace
from paceline.training.optim.optimizers import clip_gradients
from tests.ranks import run_ranks


def norms(world: RankPlace) -> dict[str, float]:
    """Return the norms of four ones and three twos on each rank: plain, whole, sharded over one axis, sharded over both."""
    sizes = Degrees(shard=2, tensor=2)
    group = join(world, GroupAborter(), axis_group_ranks(sizes))
    mesh = device_mesh(sizes, group, torch.device("cpu"))
    row, both = mesh["tensor"], [Shard(0), Shard(1)]
    ones = torch.ones(4, 4)
    gradients: dict[str, torch.Tensor] = {
        "plain": ones.clone(),
        "whole": distribute_tensor(ones, row, [Replicate()], src_data_rank=None),
        "cut": distribute_tensor(ones, row, [Shard(1)], src_data_rank=None),
        "cut twice": distribute_tensor(ones, mesh, both, src_data_rank=None),
        "uneven": distribute_tensor(torch.ones(3, 4), mesh, [Shard(0), Replicate()], src_data_rank=None),
    }
    found = {name: global_norm([gradient], group.axis_groups).item() for name, gradient in gradients.items()}
    found["all"] = global_norm(gradients.values(), group.axis_groups).item()
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients.values()]
    for parameter, gradient in zip(parameters, gradients.values(), strict=True):
        parameter.grad = gradient
    assert clip_gradients(parameters, 1.0, group.axis_groups).item() == found["all"]
    found["clipped"] = global_norm(gradients.values(), group.axis_groups).item()
    group.close()
    return found


def test_the_norm_over_plain_and_cut_gradients_is_the_true_one() -> None:
    for rank in run_ranks(norms, 4):
        expected = {"plain": 4.0, "whole": 4.0, "cut": 4.0, "cut twice": 4.0, "uneven": 12**0.5, "all": 76**0.5, "clipped": 1.0}
        assert rank == pytest.approx(expected, rel=1e-6)


def unsettled(world: RankPlace) -> tuple[str, list[float]]:
    sizes = Degrees(tensor=2)
    group = join(world, GroupAborter(), axis_group_ranks(sizes))
    mesh = device_mesh(sizes, group, torch.device("cpu"))
    parameter = nn.Parameter(DTensor.from_local(torch.zeros(2), mesh, [Replicate()]))
    parameter.grad = DTensor.from_local(torch.full((2,), float(world.rank + 1)), mesh, [Partial()])
    with pytest.raises(PartialGradientError) as refusal:
        global_norm([parameter.grad], group.axis_groups)
    reduce_partial_gradients([parameter], group.axis_groups["tensor"])
    reduce_partial_gradients([parameter], group.axis_groups["tensor"])  # harmless the second time
    assert isinstance(parameter.grad, DTensor)
    settled: list[float] = parameter.grad.to_local().tolist()
    group.close()
    return str(refusal.value), settled


def test_a_gradient_that_is_not_added_up_has_no_norm() -> None:
    for message, settled in run_ranks(unsettled, 2):
        assert "reduce_partial_gradients" in message
        assert settled == [3.0, 3.0]


def summed(world: RankPlace) -> list[list[float]]:
    """A gradient that lies row by row on rank 0 and column by column on rank 1, and one of another data type."""
    group = join(world, GroupAborter(), axis_group_ranks(Degrees(context=2)))
    values = torch.arange(6.0).view(3, 2)
    parameters = [nn.Parameter(torch.zeros(3, 2)), nn.Parameter(torch.zeros(2, dtype=torch.float64)), nn.Parameter(torch.zeros(1))]
    parameters[0].grad = values.clone() if world.rank == 0 else values.t().contiguous().t()
    parameters[1].grad = torch.ones(2, dtype=torch.float64)
    sum_gradients(parameters, group.axis_groups)
    group.close()
    return [parameter.grad.flatten().tolist() for parameter in parameters if parameter.grad is not None]


def test_layouts_that_differ_between_ranks_do_not_mix_up_elements() -> None:
    for rank in run_ranks(summed, 2):
        assert rank == [[0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [2.0, 2.0]]
