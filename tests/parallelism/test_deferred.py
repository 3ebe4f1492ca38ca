"""Models that are built unit by unit: the same bits as those built at once, and never whole."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import nn

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism import mesh
from paceline.parallelism.apply import parallelize
from paceline.parallelism.deferred import Build, NotDeferrableError, at_once, defer, materialize
from paceline.parallelism.options import ParallelizeOptions
from paceline.parallelism.plan import degrees
from paceline.training.link import RankPlace
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.mlp import model as mlp
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.resnet import model as resnet
from paceline.training.models.resnet.config import ResnetModel
from tests.allocations import peak_bytes
from tests.parallelism.parity import STATISTICS, train
from tests.ranks import run_ranks
from tests.training.specs import tiny_gpt

CPU = torch.device("cpu")
DEEP = GptModel(layers=12, heads=4, dim=128)
MODELS: dict[str, Callable[[], nn.Module]] = {
    "gpt": functools.partial(gpt.build, GptModel(layers=2, heads=2, dim=32)),
    "untied": functools.partial(gpt.build, GptModel(layers=2, heads=2, dim=32, tied_embeddings=False)),
    "mlp": functools.partial(mlp.build, MlpModel(), 64, 10),
    "resnet": functools.partial(resnet.build, ResnetModel(depth=8, width=4)),
}


def built(build: Build, name: str) -> nn.Module:
    torch.manual_seed(7)
    return build(MODELS[name])


def tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    return dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers())


@pytest.mark.parametrize("name", MODELS)
def test_the_bits_are_those_of_a_model_built_at_once(name: str) -> None:
    expected, deferred = built(at_once, name), built(defer, name)
    assert all(tensor.is_meta for tensor in tensors(deferred).values())
    torch.manual_seed(8)  # whatever else draws numbers meanwhile
    state = torch.get_rng_state()
    for part in reversed(list(deferred.children())):
        materialize(deferred, [part])
    materialize(deferred, [deferred])
    assert torch.get_rng_state().equal(state)
    found, wanted = tensors(deferred), tensors(expected)
    assert list(found) == list(wanted)
    for key, tensor in wanted.items():
        assert found[key].equal(tensor), key
        assert (found[key].stride(), found[key].requires_grad, type(found[key])) == (tensor.stride(), tensor.requires_grad, type(tensor))
    assert deferred.state_dict().keys() == expected.state_dict().keys()


def test_tied_parameters_stay_one() -> None:
    model = built(defer, "gpt")
    materialize(model, [model])
    assert isinstance(model, gpt.Gpt)
    assert model.head.weight is model.embedding.weight


def test_what_brings_numbers_from_elsewhere_cannot_be_written_down() -> None:
    def build() -> nn.Module:
        layer = nn.Linear(2, 2)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(numpy.eye(2, dtype=numpy.float32)))
        return layer

    with pytest.raises(NotDeferrableError, match=r"a tensor of shape \(2, 2\) on cpu comes from elsewhere; build the model at once"):
        defer(build)


@pytest.mark.parametrize("world_size", [2, 4])
@pytest.mark.parametrize("tied", [True, False])
def test_a_sharded_model_begins_with_the_bits_of_one_process(world_size: int, tied: bool) -> None:
    spec = tiny_gpt()
    spec["model"] |= {"tied_embeddings": tied, "layers": 3}
    (expected,) = run_ranks(train, 1, spec | {"parallelism": {"strategy": "single"}}, 1, 0)
    sharded = spec | {"parallelism": {"strategy": "fsdp"}, "resources": {"nodes": world_size}}
    for found in run_ranks(train, world_size, sharded, 1, 0):
        assert without_statistics(found.parameters) == without_statistics(expected.parameters)


def without_statistics(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: values for name, values in parameters.items() if not name.endswith(STATISTICS)}


def peak_of(world: RankPlace, how: str) -> int:
    """Bytes at the fullest moment of building and sharding, each block by itself."""
    sizes = degrees("fsdp", world.world_size)
    group = join(world, GroupAborter(), mesh.axis_group_ranks(sizes))
    build: Build = defer if how == "deferred" else at_once
    kept: list[object] = []

    def make() -> None:
        model = build(functools.partial(gpt.build, DEEP))
        kept.append(
            parallelize(model, sizes, CPU, group, reproducible=False, choices=dataclasses.replace(ParallelizeOptions(), least_in_unit=1))
        )

    return peak_bytes(make)


def test_no_rank_ever_holds_all_of_it() -> None:
    whole = sum(parameter.nbytes for parameter in gpt.build(DEEP).parameters())
    block = whole / DEEP.layers
    deferred, together = (run_ranks(peak_of, 4, how) for how in ("deferred", "at once"))
    assert max(deferred) < whole / 4 + 3 * block
    assert min(together) > whole
