"""Rings and hierarchies of real ranks: sums, bytes, placement by machine, and the loss of a rank."""

from __future__ import annotations

import os
import re
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch._C._distributed_c10d import HashStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from paceline.distributed.abort import GroupAborter
from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.collectives.ring import Ring, Transport
from paceline.distributed.collectives.tensors import GroupTransport, TensorValues
from paceline.distributed.compression.factory import reduction_for
from paceline.distributed.compression.options import CompressionOptions
from paceline.distributed.joining import join, meet
from paceline.distributed.process_group import Group
from paceline.distributed.protocol_errors import ProtocolError
from paceline.distributed.reduction import GradientBucket, GradientPiece
from paceline.distributed.reduction_groups import AXIS, ReductionGroups, ReductionRequest, _Builder
from paceline.distributed.traffic import Traffic
from paceline.distributed.world_group import WorldGroup
from paceline.training.link import RankPlace
from tests.distributed.collectives.rings import Meddler
from tests.ranks import PROCESSES, call, make_world, receive, run_ranks, store_server

ELEMENTS = 4000


#: Names of hosts.
MACHINES = ("a", "b")


def joined(world: RankPlace, nodes: list[int], algorithm: Algorithm) -> Group:
    placed = msgspec.structs.replace(world, hostname=MACHINES[nodes[world.rank]])
    return join(placed, GroupAborter(), {"replicate": [list(range(world.world_size))]}, reduces=frozenset({algorithm}))


def joined_as_on_gpus(world: RankPlace, nodes: list[int], algorithm: Algorithm) -> Group:
    """The groups of ranks on GPUs, over gloo: no rings."""
    aborter = GroupAborter()
    STORES.append(meet(world, aborter))
    request = ReductionRequest(frozenset({algorithm}), world.generation, MACHINES[nodes[world.rank]], "127.0.0.1", by_backend=True)
    axes = {"replicate": [list(range(world.world_size))]}
    store = PrefixStore(f"g{world.generation}", STORES[-1])
    return WorldGroup(world.rank, world.world_size, torch.device("cpu"), store, aborter, axes, request)


STORES: list[Store] = []  # of this rank's process: its group holds on to them
Joined = Callable[[RankPlace, list[int], Algorithm], Group]


def groups_of(group: Group) -> ReductionGroups:
    assert group.reduction_groups is not None
    return group.reduction_groups


def bucket(rank: int, step: int) -> GradientBucket:
    values = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(100 * step + rank))
    shape = (50, ELEMENTS // 100)
    return GradientBucket(
        values,
        [GradientPiece("a", shape, 0, ELEMENTS // 2), GradientPiece("b", shape, ELEMENTS // 2, ELEMENTS // 2, compressible=True)],
        step,
    )


def summed(
    world: RankPlace, nodes: list[int], algorithm: Algorithm, compression: dict[str, Any], steps: int, join_as: Joined = joined
) -> dict[str, Any]:
    group = join_as(world, nodes, algorithm)
    groups = groups_of(group)
    reduction = reduction_for(algorithm, CompressionOptions(**compression), groups)
    found, left = [], []
    group.sent()
    for step in range(1, steps + 1):
        made = bucket(world.rank, step)
        group.start_reduction(reduction, made).wait()
        reduction.commit()
        found.append(made.values.numpy())
        left.append({name: part.clone().numpy() for name, part in reduction.state().get("residual", {}).items()})
    sent = group.sent().by_axis["replicate"]
    order = groups.ring.ranks if groups.ring is not None else groups.local.ranks if groups.local is not None else ()
    group.barrier_and_leave()
    return {"sums": found, "left": left, "sent": sent, "order": order}


def left_of(residuals: dict[str, Any]) -> torch.Tensor:
    """What one rank has left out; of parameters outside of its segment it keeps nothing."""
    return torch.cat([torch.as_tensor(residuals.get(name, torch.zeros(ELEMENTS // 2))) for name in "ab"])


def expected(size: int, step: int) -> torch.Tensor:
    return torch.stack([bucket(rank, step).values for rank in range(size)]).sum(0)


@pytest.mark.parametrize(
    ("join_as", "algorithm", "nodes", "orders"),
    [
        (joined, "ring", [0, 1, 0, 1], [(0, 2, 1, 3)] * 4),  # of four nodes on two machines
        (joined, "hierarchical", [0, 1, 0, 1], [(0, 2), (1, 3), (0, 2), (1, 3)]),
        (joined, "hierarchical", [0, 0, 1], [(0, 1, 2)] * 3),  # not as many on each: one ring
        (joined, "ring", [0, 0], [(0, 1)] * 2),
        (joined_as_on_gpus, "hierarchical", [1, 0, 1, 0], [(0, 2), (1, 3), (0, 2), (1, 3)]),
        (joined_as_on_gpus, "hierarchical", [0, 0, 1], [()] * 3),  # the backend's own sum
    ],
)
def test_sums_are_right_and_the_same_to_the_last_bit(
    join_as: Joined, algorithm: Algorithm, nodes: list[int], orders: list[tuple[int, ...]]
) -> None:
    ends = run_ranks(summed, len(nodes), nodes, algorithm, {}, 3, join_as)
    assert [each["order"] for each in ends] == orders
    for step in range(3):
        sums = [torch.from_numpy(each["sums"][step]) for each in ends]
        assert all(torch.equal(each, sums[0]) for each in sums)
        torch.testing.assert_close(sums[0], expected(len(nodes), step + 1), rtol=1e-5, atol=1e-5)


def test_bytes_are_counted_as_they_are_sent() -> None:
    ends = run_ranks(summed, 4, [0, 0, 1, 1], "ring", {}, 2)
    assert [each["sent"] for each in ends] == [2 * 2 * 3 * ELEMENTS] * 4  # steps, phases, of 4 bytes 3/4


TOP_K = {"compression": "top_k", "ratio": 0.1, "dense_steps": 1}


@pytest.mark.parametrize("join_as", [joined, joined_as_on_gpus])
@pytest.mark.parametrize("compression", [TOP_K, {"compression": "power_sgd", "dense_steps": 1}], ids=["top_k", "power_sgd"])
def test_between_machines_compressed_sums_lose_nothing(compression: dict[str, Any], join_as: Joined) -> None:
    """The sum that all have, and what all have left out of it, is the sum of all gradients."""
    nodes = [0, 0, 1, 1]
    ends = run_ranks(summed, 4, nodes, "hierarchical", compression, 4, join_as)
    total = torch.zeros(ELEMENTS)
    for step in range(4):
        sums = [torch.from_numpy(each["sums"][step]) for each in ends]
        assert all(torch.equal(each, sums[0]) for each in sums)
        total += expected(4, step + 1) - sums[0]
        kept = torch.stack([left_of(each["left"][step]) for each in ends]).sum(0)
        torch.testing.assert_close(kept, total, rtol=1e-4, atol=1e-4)
    assert total.abs().max() > 0.1  # something was left out


@pytest.mark.parametrize("join_as", [joined, joined_as_on_gpus])
def test_in_a_hierarchy_the_largest_elements_go_to_the_peers_alone(join_as: Joined) -> None:
    """Over all four ranks each would send its share of all elements to three others: half as many again as to one, and a segment's to it."""
    sent = [run_ranks(summed, 4, [0, 0, 1, 1], "hierarchical", TOP_K, steps, join_as)[0]["sent"] for steps in (2, 3)]
    within = 2 * 4 * ELEMENTS // 2  # two phases, of 4 bytes 1/2
    segment = 8 * 0.1 * ELEMENTS // 2  # values and indices to one peer
    assert within + 0.9 * segment <= sent[1] - sent[0] <= within + 1.5 * segment + 100


def divided_anew(world: RankPlace, nodes: list[int], compression: dict[str, Any]) -> dict[str, Any]:
    """From the second step on each parameter is a bucket of its own, as DDP does it. Rank 0 has something of an earlier world to send."""
    group = joined(world, nodes, "hierarchical")
    reduction = reduction_for("hierarchical", CompressionOptions(dense_steps=0, **compression), groups_of(group))
    reduction.load_state({"residual": {"a": torch.ones(ELEMENTS // 2)} if world.rank == 0 else {}})
    found = []
    for step in (1, 2, 3):
        whole = bucket(world.rank, step)
        alone = [GradientBucket(whole.values[piece.offset :][: piece.length], [replace(piece, offset=0)], step) for piece in whole.pieces]
        for each in [whole] if step == 1 else reversed(alone):
            group.start_reduction(reduction, each).wait()
        reduction.commit()
        found.append(whole.values.numpy())
    left = {name: part.numpy() for name, part in reduction.state()["residual"].items()}
    group.barrier_and_leave()
    return {"sums": found, "left": left}


@pytest.mark.parametrize("compression", [{"compression": "top_k", "ratio": 0.1}, {"compression": "power_sgd"}], ids=["top_k", "power_sgd"])
def test_what_is_left_out_between_machines_is_sent_once_by_whoever_has_its_place_now(compression: dict[str, Any]) -> None:
    ends = run_ranks(divided_anew, 4, [0, 0, 1, 1], compression)
    sent = sum((torch.from_numpy(each) for each in ends[0]["sums"]), torch.zeros(ELEMENTS))
    left = torch.stack([left_of(each["left"]) for each in ends])
    wanted = sum((expected(4, step) for step in (1, 2, 3)), torch.zeros(ELEMENTS))
    wanted[: ELEMENTS // 2] += 1.0
    torch.testing.assert_close(sent + left.sum(0), wanted, rtol=1e-4, atol=1e-4)
    for machine in (left[:2], left[2:]):
        assert ((machine != 0).sum(0) <= 1).all()  # each rank keeps something of its own segments alone


def over_process_group(world: RankPlace) -> dict[str, Any]:
    group = joined(world, [0] * world.world_size, "backend")
    replicas = groups_of(group).replicas
    order = tuple(range(world.world_size))
    ring = Ring(order, world.rank, 1, GroupTransport(replicas, order), chunk_bytes=1000)
    values = bucket(world.rank, 1).values.to(torch.bfloat16)
    for step in (1, 2):
        ring.all_reduce(TensorValues(values), step)
    sent = group.sent().by_axis["replicate"]
    group.barrier_and_leave()
    return {"sum": values.float().numpy(), "sent": sent}


def test_a_ring_over_a_torch_process_group() -> None:
    ends = run_ranks(over_process_group, 3)
    exact = 3 * torch.stack([bucket(rank, 1).values for rank in range(3)]).sum(0)
    sums = [torch.from_numpy(each["sum"]) for each in ends]
    assert all(torch.equal(each, sums[0]) for each in sums)
    torch.testing.assert_close(sums[0], exact, rtol=0.05, atol=0.2)


def meddled_with(world: RankPlace) -> str:
    group = joined(world, [0] * world.world_size, "backend")
    order = tuple(range(world.world_size))
    transport: Transport = GroupTransport(groups_of(group).replicas, order)
    if world.rank == 1:
        transport = Meddler(transport, lambda header: header._replace(step=9), at=3)
    try:
        Ring(order, world.rank, 1, transport, chunk_bytes=1000).all_reduce(TensorValues(bucket(world.rank, 1).values), 1)
    except ProtocolError as error:
        return repr(error)
    except RuntimeError:
        return "freed"
    return "nothing happened"


def test_a_message_that_does_not_belong_in_a_torch_process_group_is_named() -> None:
    assert re.match(r"WrongStepError\(.*from rank 1: expected call 0 in step 1", run_ranks(meddled_with, 3)[2])


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_ring_connects_in_a_network_of_ipv6() -> None:
    request = ReductionRequest(frozenset({"ring"}), generation=1, machine="a", host="::1")
    ring = _Builder(0, request, HashStore(), GroupAborter(), Traffic((AXIS,))).ring("all", [0])
    assert ring is not None
    ring.close()


def left_alone(world: RankPlace, victim: int) -> str:
    group = joined(world, [0] * world.world_size, "ring")
    reduction = reduction_for("ring", CompressionOptions(), groups_of(group))
    try:
        for step in range(1, 1000):
            if world.rank == victim and step == 5:
                os.kill(os.getpid(), signal.SIGKILL)
            group.start_reduction(reduction, bucket(world.rank, step)).wait()
    except RuntimeError as error:
        return str(error)
    return "nothing happened"


def test_the_peers_of_a_killed_rank_are_freed_at_once() -> None:
    with store_server() as store:
        store.admit(1)
        pipes, processes = [], []
        for rank in range(3):
            receiver, sender = PROCESSES.Pipe(duplex=False)
            world = make_world(rank, 3, store.port, Path("/nonexistent"))
            processes.append(PROCESSES.Process(target=call, args=(sender, left_alone, world, (1,))))
            processes[-1].start()
            sender.close()
            pipes.append(receiver)
        try:
            found = [receive(pipes[rank], 30.0) for rank in (0, 2)]
            assert all(re.search(r"is gone|cannot be heard|cannot be sent", each) for each in found), found  # and not by a time limit
        finally:
            for process in processes:
                process.kill()
                process.join()
