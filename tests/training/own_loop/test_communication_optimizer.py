"""Compressed and hierarchical means in loops of one's own, on real ranks started as torchrun starts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import FileStore  # type: ignore[attr-defined]  # exported by its documentation, not by its types

import paceline
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.training.errors import InvalidInputError
from paceline.training.link import RankPlace
from paceline.training.own_loop.communication_optimizer import CommunicationOptimizer
from tests.ranks import run_ranks

RANKS = 4
GROUPS: list[Group] = []  # of this rank's process: the group holds on to the store


def start(world: RankPlace) -> None:
    GROUPS.append(join(world, GroupAborter()))  # makes torch's process group of all ranks


def gradient_of(rank: int, step: int, shape: tuple[int, ...] = (40, 50)) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1000 * step + rank))


def mean_of(step: int) -> torch.Tensor:
    return torch.stack([gradient_of(rank, step) for rank in range(RANKS)]).mean(0)


def compressed(world: RankPlace) -> dict[str, Any]:
    start(world)
    optimizer = CommunicationOptimizer(compression_ratio=0.05, bucket_size_mb=25, enable_overlap=True)
    found = []
    for _ in range(60):
        gradient = gradient_of(world.rank, 0)  # the same each time: sooner or later all of it is sent
        assert optimizer.all_reduce_compressed(gradient) is gradient
        found.append(gradient.numpy().copy())  # the gradient itself is gone before the next one comes
    transposed = gradient_of(world.rank, 1).t()
    dense = CommunicationOptimizer(compression_ratio=1.0)
    dense.all_reduce_compressed(transposed)
    return {"means": found, "dense": transposed.numpy(), "sent": optimizer.sent_bytes}


def test_the_largest_elements_are_sent_and_the_rest_later() -> None:
    ends = run_ranks(compressed, RANKS)
    for step in range(60):
        assert all((end["means"][step] == ends[0]["means"][step]).all() for end in ends)
    first, average = torch.from_numpy(ends[0]["means"][0]), torch.stack([torch.from_numpy(each) for each in ends[0]["means"]]).mean(0)
    assert 0 < int((first != 0).sum()) <= 0.05 * 2000 * RANKS
    assert (average - mean_of(0)).norm() < 0.25 * (first - mean_of(0)).norm()
    assert ends[0]["sent"] < 60 * 0.5 * 4 * 2000 * 1.5  # half of a dense sum's bytes would be 60 * 12000
    torch.testing.assert_close(torch.from_numpy(ends[2]["dense"]), mean_of(1).t())


def made_early(world: RankPlace) -> dict[str, Any]:
    dense, wrapper = CommunicationOptimizer(compression_ratio=1.0), CommunicationOptimizer(compression_ratio=1.0)  # at the top of a script
    alone = gradient_of(world.rank, 0)
    dense.all_reduce_compressed(alone)
    start(world)
    gradient = gradient_of(world.rank, 0)
    dense.all_reduce_compressed(gradient)
    ddp = wrapper.wrap(nn.Linear(2, 1))
    return {"alone": alone.numpy(), "mean": gradient.numpy(), "wrapped": type(ddp).__name__}


def test_an_optimizer_that_is_made_before_the_process_group_sums_once_there_is_one() -> None:
    for rank, end in enumerate(run_ranks(made_early, RANKS)):
        torch.testing.assert_close(torch.from_numpy(end["alone"]), gradient_of(rank, 0))  # a world of one
        torch.testing.assert_close(torch.from_numpy(end["mean"]), mean_of(0))
        assert end["wrapped"] == "DistributedDataParallel"


def hierarchical(world: RankPlace) -> Any:
    start(world)
    nodes = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    peers = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    optimizer = CommunicationOptimizer()
    gradient = gradient_of(world.rank, 0)[:, 1:]  # 1,960 elements, not row-major
    optimizer.hierarchical_all_reduce(gradient, intra_node_group=nodes[world.rank // 2], inter_node_group=peers[world.rank % 2])
    return gradient.contiguous().numpy()


def test_a_hierarchical_mean_is_exact() -> None:
    ends = [torch.from_numpy(each) for each in run_ranks(hierarchical, RANKS)]
    assert all(torch.equal(each, ends[0]) for each in ends)
    torch.testing.assert_close(ends[0], mean_of(0)[:, 1:].contiguous())


def misplaced(world: RankPlace, nodes: list[list[int]], peers: list[list[int]]) -> str:
    start(world)
    within, between = ([dist.new_group(ranks) for ranks in lists] for lists in (nodes, peers))
    mine = [
        next(group for group, ranks in zip(*pairs, strict=True) if world.rank in ranks) for pairs in ((within, nodes), (between, peers))
    ]
    with pytest.raises(InvalidInputError) as refused:
        CommunicationOptimizer().hierarchical_all_reduce(torch.ones(10), *mine)
    return str(refused.value)


@pytest.mark.parametrize(
    ("nodes", "peers", "told"),
    [
        ([[0, 1], [2]], [[0, 2], [1]], "rank 2 has place 0 of 1 on its machine"),  # gloo ended the process
        ([[0, 1], [2, 3]], [[0, 3], [1, 2]], "rank 3 has place 1 of 2 on its machine"),  # a wrong mean, without a word
        (
            [[0, 1], [2, 3]],
            [[0, 2], [1], [3]],
            "and inter_node_group=[0, 2] are no hierarchy",
        ),  # the rank that is alone notices by its neighbour
    ],
)
def test_groups_that_are_no_hierarchy_are_refused_on_every_rank(nodes: list[list[int]], peers: list[list[int]], told: str) -> None:
    found = run_ranks(misplaced, sum(map(len, nodes)), nodes, peers)
    assert told in found[0]
    assert all("are no hierarchy for a gradient of 10 elements" in each for each in found)


def wrapped(world: RankPlace, overlap: bool) -> Any:
    start(world)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1))
    ddp = CommunicationOptimizer(0.1, bucket_size_mb=0.001, enable_overlap=overlap).wrap(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    draw, losses = torch.Generator().manual_seed(world.rank), []
    for _ in range(80):
        inputs = torch.randn(16, 20, generator=draw)
        loss = (ddp(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, torch.cat([parameter.detach().view(-1) for parameter in model.parameters()]).numpy()


@pytest.mark.parametrize("overlap", [True, False])
def test_ddp_trains_over_it_and_all_ranks_keep_the_same_bits(overlap: bool) -> None:
    ends = run_ranks(wrapped, 2, overlap)
    assert (ends[0][1] == ends[1][1]).all()
    assert sum(ends[0][0][-5:]) < 0.3 * sum(ends[0][0][:5])


def two_models(world: RankPlace) -> list[list[Any]]:
    """Trained in turn by one CommunicationOptimizer, and each by one of its own."""
    start(world)
    found = []
    one = CommunicationOptimizer(0.1)
    for optimizers in ([one, one], [CommunicationOptimizer(0.1), CommunicationOptimizer(0.1)]):
        torch.manual_seed(0)
        wrapped = [each.wrap(nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 1))) for each in optimizers]
        updates = [torch.optim.SGD(model.parameters(), lr=0.05) for model in wrapped]
        draw = torch.Generator().manual_seed(world.rank)
        for _ in range(5):
            for model, update in zip(wrapped, updates, strict=True):
                inputs = torch.randn(16, 20, generator=draw)
                update.zero_grad()
                (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().backward()
                update.step()
        found.append([torch.cat([parameter.detach().view(-1) for parameter in model.parameters()]).numpy() for model in wrapped])
    return found


def test_models_that_one_optimizer_wraps_do_not_get_one_anothers_gradients() -> None:
    for together, apart in run_ranks(two_models, 2):
        for one, other in zip(together, apart, strict=True):
            assert (one == other).all()


def without_a_cpu_backend(world: RankPlace, folder: str) -> tuple[Any, str]:
    """The process group knows tensors of GPUs alone, as one that was made by init_process_group("nccl")."""
    dist.init_process_group("cuda:gloo", store=FileStore(f"{folder}/store", 2), rank=world.rank, world_size=2)
    gradient = gradient_of(world.rank, 0)
    CommunicationOptimizer(0.5).all_reduce_compressed(gradient)
    try:
        CommunicationOptimizer(0.5, process_group=dist.group.WORLD)
    except InvalidInputError as error:
        return gradient.numpy(), str(error)
    return gradient.numpy(), "taken"


def test_compressed_sums_work_where_the_process_group_is_of_nccl_alone(tmp_path: Path) -> None:
    """No backend type associated with device type cpu: what is sent compressed, and its lengths, lie in the host's memory."""
    ends = run_ranks(without_a_cpu_backend, 2, str(tmp_path))
    assert (ends[0][0] == ends[1][0]).all()
    for _, said in ends:
        assert 'process_group has no backend for the CPU: make it with dist.new_group(backend="cpu:gloo,' in said


def mixed_up(world: RankPlace) -> str:
    start(world)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model(torch.randn(3, 8)).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    known = CommunicationOptimizer(0.5, model=model)
    named = CommunicationOptimizer(0.5)
    for number, gradient in enumerate(gradients):
        assert gradient is not None
        known.all_reduce_compressed(gradient)
        named.all_reduce_compressed(gradient, name=str(number))
    try:
        for gradient in gradients:
            assert gradient is not None
            CommunicationOptimizer.all_reduce_compressed(named, gradient)
    except InvalidInputError as error:
        return str(error)
    return "taken for one another"


def test_two_gradients_of_one_shape_need_names_or_the_model() -> None:
    for said in run_ranks(mixed_up, 2):
        assert "two gradients of shape (8, 8) cannot be told apart" in said


def seen_anew_in_each_call(world: RankPlace) -> tuple[list[str], str]:
    """Loops average `p.grad.data`, as torch's tutorials do: a new Python object each time."""
    start(world)
    model = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
    model(torch.randn(3, 8)).sum().backward()
    known, unnamed = CommunicationOptimizer(0.5, model=model), CommunicationOptimizer(0.5)
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    for gradient in gradients:
        known.all_reduce_compressed(gradient.data)
    assert known._reduction is not None
    kept = sorted(known._reduction.state()["residual"])
    try:
        for gradient in gradients:
            unnamed.all_reduce_compressed(gradient.view(-1))
    except InvalidInputError as error:
        return kept, str(error)
    return kept, "taken for one another"


def test_gradients_are_told_apart_by_memory() -> None:
    for kept, said in run_ranks(seen_anew_in_each_call, 2):
        assert kept == ["0.weight", "1.weight"], "what is not sent of one is added to the other"
        assert "two gradients of shape (64,) cannot be told apart" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"compression_ratio": 0}, "compression_ratio=0 is a share"),
        ({"compression_ratio": float("nan")}, "compression_ratio=nan is a share"),
        ({"compression_ratio": 1.5}, "over 0, up to 1"),
        ({"compression_ratio": "a"}, "compression_ratio='a' is a share of elements: use a number"),
        ({"compression_ratio": None}, "compression_ratio=None is a share"),
        ({"bucket_size_mb": "25"}, "bucket_size_mb='25' is a size in MiB"),
        ({"bucket_size_mb": -1}, "bucket_size_mb=-1 is a size in MiB"),
    ],
)
def test_values_out_of_range_are_named(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        CommunicationOptimizer(**arguments)


def test_a_world_of_one_changes_nothing_and_has_nothing_to_wrap() -> None:
    optimizer = paceline.CommunicationOptimizer(compression_ratio=0.01)
    gradient = torch.randn(5)
    assert torch.equal(optimizer.all_reduce_compressed(gradient.clone()), gradient)
    with pytest.raises(InvalidInputError, match="wrap needs a process group"):
        optimizer.wrap(nn.Linear(2, 2))
