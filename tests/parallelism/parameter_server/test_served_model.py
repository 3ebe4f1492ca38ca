"""Servers and workers over real ranks come to the parameters of one process, to the last bit, whatever the model is made of."""

from __future__ import annotations

import pytest
import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.protocol_errors import ProtocolError
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.data_parallel.reproducible import Reproducible
from paceline.parallelism.parameter_server.served_model import ServedModel, ShardUpdate, shards_of
from paceline.parallelism.plan import Coordinates, assign_evenly, with_servers
from paceline.parallelism.running_statistics import RunningStatistics
from paceline.training.link import RankPlace
from tests.parallelism.data_parallel.test_reproducible import MICRO_BATCHES, STEPS, digest, loss_of, make_model
from tests.ranks import run_ranks


def state_of(model: torch.nn.Module) -> str:
    return digest({name: value.flatten().tolist() for name, value in model.state_dict().items()})


def served(world: RankPlace, servers: int) -> str:
    """The hash of the model after some steps: batch norm, two data types, tied, unused and frozen parameters."""
    group, model, step = join(world, GroupAborter()), make_model(), 0
    wrapped = ServedModel(model, group, servers, lambda: step + 1)
    assignment = Coordinates(with_servers(world.world_size, servers), world.rank).assignment(MICRO_BATCHES)
    own = shards_of(model, servers)[world.rank].trainable if world.rank < servers else ()
    optimizer = torch.optim.SGD(own, lr=0.1) if own else None
    for step in range(STEPS):
        assert wrapped.pull()
        assert not wrapped.pull()  # it is here
        wrapped.begin_step(assignment, {})
        for index in assignment.own:
            with wrapped.accumulate(index, final=index == assignment.own[-1]):
                loss_of(wrapped, step, index).backward()  # type: ignore[no-untyped-call]
        wrapped.finish_step()
        wrapped.clip(None)
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    step = STEPS
    wrapped.sync_buffers()
    group.barrier_and_leave()
    return state_of(model)


def alone(world: RankPlace) -> str:
    """The same on one rank, in a process like the others: another number of threads rounds otherwise."""
    model = make_model()
    wrapped = Reproducible(model, SoloGroup())
    optimizer = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
    for step in range(STEPS):
        wrapped.begin_step(assign_evenly(MICRO_BATCHES, 1), {})
        for index in range(MICRO_BATCHES):
            with wrapped.accumulate(index, final=index == MICRO_BATCHES - 1):
                loss_of(wrapped, step, index).backward()  # type: ignore[no-untyped-call]
        wrapped.finish_step()
        optimizer.step()
        optimizer.zero_grad()
    return state_of(model)


@pytest.mark.parametrize(("ranks", "servers"), [(2, 1), (4, 2), (5, 1)])
def test_parameters_and_running_statistics_are_those_of_one_process(ranks: int, servers: int) -> None:
    assert set(run_ranks(served, ranks, servers)) == {*run_ranks(alone, 1)}


def test_every_tensor_belongs_to_one_server_and_none_is_cut() -> None:
    model = make_model()
    for servers in (1, 2, 5):
        shards = shards_of(model, servers)
        assert [id(each) for shard in shards for each in shard.parameters] == [id(each) for each in model.parameters()]
        assert sum(len(shard.buffers) for shard in shards) == 3
    with pytest.raises(ProtocolError, match="40 servers cannot share"):
        shards_of(model, 40)


def test_a_server_gives_a_parameter_its_gradient_in_the_memory_order_of_that_parameter() -> None:
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    gradient = torch.randn(4, 3, 3, 3)
    ShardUpdate(1, ((model.weight, gradient),), (), 0, 1).put(RunningStatistics(model))
    assert model.weight.grad is not None
    assert model.weight.grad.stride() == model.weight.stride()
    assert torch.equal(model.weight.grad, gradient)
