"""Gradients as backward leaves them: of plain, compiled, replicated and sharded models."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import paceline
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.training.errors import InvalidInputError
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

GROUPS: list[Group] = []  # of this rank's process: the group holds on to the store


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def inputs(number: int) -> torch.Tensor:
    return torch.randn(16, 4, generator=torch.Generator().manual_seed(number))


def gradient_of(parameter: torch.Tensor | nn.Module) -> torch.Tensor:
    assert isinstance(parameter, nn.Parameter)
    assert parameter.grad is not None
    return parameter.grad


def test_chosen_gradients_are_measured_and_kept() -> None:
    model = make_model()
    with paceline.intercept_gradients(model, names=["*.weight"], snapshots=True) as seen:
        model(inputs(0)).sum().backward()
        kept = gradient_of(model[0].weight).clone()
        model.zero_grad(set_to_none=False)  # the copy is not of it any more
        report = seen.take()
    assert list(report.gradients) == ["0.weight", "2.weight"]
    assert report.unused == ()
    record = report.gradients["0.weight"]
    assert (record.name, record.shape, record.elements, record.is_local_shard) == ("0.weight", (8, 4), 32, False)
    assert record.norm == pytest.approx(float(kept.norm()))
    assert record.zero_share == float((kept == 0).float().mean())
    assert len(record.histogram) == len(report.edges) - 1 == 64
    assert sum(record.histogram) + record.zeros == 32
    assert record.snapshot is not None
    assert torch.equal(record.snapshot, kept)


def test_nan_and_infinity_are_counted_where_they_arise() -> None:
    model = make_model()
    with paceline.intercept_gradients(model, bins=8) as seen:
        output = model(inputs(0))
        (output * torch.tensor([math.inf, 1.0])).sum().backward()
        report = seen.take()
    assert report.gradients["2.bias"].infs == 1
    assert report.gradients["2.bias"].norm == math.inf
    assert report.gradients["2.bias"].snapshot is None
    assert report.gradients["0.weight"].nans + report.gradients["0.weight"].infs > 0


def test_the_last_of_several_backward_passes_counts() -> None:
    model = make_model()
    with paceline.intercept_gradients(model) as seen:
        model(inputs(0)).sum().backward()
        first = gradient_of(model[2].weight).norm().item()
        model(inputs(1)).sum().backward()
        assert seen.take().gradients["2.weight"].norm == pytest.approx(gradient_of(model[2].weight).norm().item())
        model.zero_grad()
        model(inputs(0)).sum().backward()
        assert seen.take().gradients["2.weight"].norm == pytest.approx(first)
        empty = seen.take()
    assert empty.gradients == {}
    assert len(empty.unused) == 4


def test_parameters_that_no_backward_pass_reached_are_listed() -> None:
    model = make_model()
    model[0].bias.requires_grad_(False)
    with paceline.intercept_gradients(model) as seen:
        model[0](inputs(0)).sum().backward()
        report = seen.take()
    assert list(report.gradients) == ["0.weight"]
    assert report.unused == ("2.weight", "2.bias")


def test_hooks_end_with_the_block_also_by_an_error() -> None:
    model = make_model()
    context = paceline.intercept_gradients(model)
    seen = context.__enter__()
    model(inputs(0)).sum().backward()
    assert not context.__exit__(KeyError, KeyError(), None)
    assert len(seen.take().gradients) == 4
    model(inputs(0)).sum().backward()
    assert seen.take().gradients == {}
    assert not any(parameter._post_accumulate_grad_hooks for parameter in model.parameters())


def test_a_gradient_that_an_earlier_hook_has_used_up_is_not_seen() -> None:
    model = make_model()

    def update_in_backward(parameter: torch.Tensor) -> None:
        parameter.grad = None

    first, *_ = model.parameters()
    first.register_post_accumulate_grad_hook(update_in_backward)  # type: ignore[no-untyped-call]
    with paceline.intercept_gradients(model, "0.*") as seen:
        model(inputs(0)).sum().backward()
        report = seen.take()
    assert (list(report.gradients), report.unused) == (["0.bias"], ("0.weight",))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_models_of_other_precisions_are_measured(dtype: torch.dtype) -> None:
    torch.set_default_dtype(dtype)
    try:
        model = nn.Linear(4, 2)
        with paceline.intercept_gradients(model, snapshots=True) as seen:
            model(torch.ones(3, 4)).sum().backward()
            record = seen.take().gradients["weight"]
    finally:
        torch.set_default_dtype(torch.float32)
    assert record.norm == pytest.approx(3 * math.sqrt(8))
    assert record.snapshot is not None
    assert record.snapshot.dtype == dtype


def test_interceptors_can_be_nested() -> None:
    model = make_model()
    with paceline.intercept_gradients(model) as outer, paceline.intercept_gradients(model, "2.*") as inner:
        model(inputs(0)).sum().backward()
        assert len(outer.take().gradients) == 4
        assert list(inner.take().gradients) == ["2.weight", "2.bias"]


def test_tied_parameters_have_one_record_under_the_name_that_was_asked_for() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    for names, found in (("1.*", ["1.weight"]), ("*", ["0.weight"])):
        with paceline.intercept_gradients(model, names) as seen:
            model(inputs(0)).sum().backward()
            assert list(seen.take().gradients) == found


def test_sparse_gradients_are_measured_whole() -> None:
    model = nn.Embedding(10, 3, sparse=True)
    with paceline.intercept_gradients(model) as seen:
        model(torch.tensor([2, 2, 7])).sum().backward()
        record = seen.take().gradients["weight"]
    assert (record.shape, record.zeros, record.norm) == ((10, 3), 24, pytest.approx(math.sqrt(3 * (4 + 1))))


def compiled(module: nn.Module) -> nn.Module:
    made = torch.compile(module, backend="eager")
    assert isinstance(made, nn.Module)
    return made


def test_names_are_without_what_compile_puts_before_them() -> None:
    blocks = make_model()
    blocks[0] = compiled(blocks[0])  # torch warns of the inputs of later ones
    for model in (compiled(make_model()), blocks):
        with paceline.intercept_gradients(model, ["0.*"]) as seen:
            model(inputs(0)).sum().backward()
            assert list(seen.take().gradients) == ["0.weight", "0.bias"]


def test_a_pattern_without_a_parameter_is_refused_with_names() -> None:
    words = "no trainable parameter matches 'weight'; of the 4 that there are: 0.weight, 0.bias, 2.weight"
    with pytest.raises(InvalidInputError, match=words), paceline.intercept_gradients(make_model(), ["*.bias", "weight"]):
        pass
    with pytest.raises(InvalidInputError, match="no trainable parameter"), paceline.intercept_gradients(make_model(), []):
        pass


@pytest.mark.parametrize("bins", [0, 6, 63, 1026])
def test_other_bins_are_refused(bins: int) -> None:
    with (
        pytest.raises(InvalidInputError, match=f"bins={bins}: use an even number from 8 to 1,024"),
        paceline.intercept_gradients(make_model(), bins=bins),
    ):
        pass


class Flattened(FullyShardedDataParallel):
    """Made without a device: the original wants an accelerator."""

    def __init__(self) -> None:
        nn.Module.__init__(self)


def test_fsdp_with_flat_parameters_is_refused() -> None:
    with (
        pytest.raises(InvalidInputError, match=r"shard with torch.distributed.fsdp.fully_shard"),
        paceline.intercept_gradients(Flattened()),
    ):
        pass


def start(world: RankPlace) -> None:
    GROUPS.append(join(world, GroupAborter()))  # makes torch's process group of all ranks


def replicated(world: RankPlace, bucket_view: bool) -> Any:
    start(world)
    model = DistributedDataParallel(make_model(), gradient_as_bucket_view=bucket_view)
    with paceline.intercept_gradients(model, snapshots=True) as seen:
        model(inputs(world.rank)).sum().backward()
        report = seen.take()
    snapshots = {name: record.snapshot for name, record in report.gradients.items()}
    assert all(each is not None for each in snapshots.values())
    own = {
        name: (record.norm, each.numpy())
        for (name, each), record in zip(snapshots.items(), report.gradients.values(), strict=True)
        if each is not None
    }
    return own, gradient_of(model.module[0].weight).numpy()


@pytest.mark.parametrize("bucket_view", [False, True])
def test_under_ddp_each_rank_sees_its_own_gradient_and_not_the_mean(bucket_view: bool) -> None:
    ends = run_ranks(replicated, 2, bucket_view)
    alone = []
    for rank, (own, _) in enumerate(ends):
        model = make_model()
        model(inputs(rank)).sum().backward()
        alone.append(gradient_of(model[0].weight))
        assert list(own) == ["0.weight", "0.bias", "2.weight", "2.bias"]
        for name, parameter in model.named_parameters():
            norm, snapshot = own[name]
            torch.testing.assert_close(torch.from_numpy(snapshot), gradient_of(parameter))
            assert norm == pytest.approx(gradient_of(parameter).norm().item(), rel=1e-5)
    assert not torch.allclose(alone[0], alone[1])
    for _, mean in ends:
        torch.testing.assert_close(torch.from_numpy(mean), (alone[0] + alone[1]) / 2)


def sharded(world: RankPlace) -> Any:
    start(world)
    model = make_model()
    mesh = init_device_mesh("cpu", (2,))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    with paceline.intercept_gradients(model, ["*.weight"]) as seen:
        model(inputs(world.rank)).sum().backward()
        records = seen.take().gradients
    return {name: (record.shape, record.is_local_shard, record.norm) for name, record in records.items()}


def test_under_fsdp_each_rank_sees_its_shard_of_the_mean() -> None:
    ends = run_ranks(sharded, 2)
    model = make_model()
    for rank in range(2):
        (model(inputs(rank)).sum() / 2).backward()
    for rank, own in enumerate(ends):
        part = gradient_of(model[0].weight)[4 * rank : 4 * rank + 4]
        assert own["0.weight"] == ((4, 4), True, pytest.approx(part.norm().item(), rel=1e-5))
        assert own["2.weight"][0] == (1, 8)
