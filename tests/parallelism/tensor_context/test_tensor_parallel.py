"""Refusals of plans over the tensor axis. That models over it train as one process does: `test_parity.py`."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism.tensor_context.division import common_divisors
from paceline.parallelism.tensor_context.shard_model import CannotShardError
from paceline.parallelism.tensor_context.tensor_parallel import IncompletePlanError, apply_tensor_parallel, refuse_plain_parameters
from paceline.training.link import RankPlace
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.limits import divided_by_tensor, why_not_sharded
from paceline.training.models.gpt.shard import shard
from tests.ranks import run_ranks


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(4, 4)
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight = self.embedding.weight


def tied_apart(world: RankPlace) -> str:
    group = join(world, GroupAborter())
    plan = {"embedding": ColwiseParallel(), "head": ColwiseParallel()}
    with pytest.raises(IncompletePlanError) as refusal:
        apply_tensor_parallel(Tied(), init_device_mesh("cpu", (2,)), plan)
    group.close()
    return str(refusal.value)


def test_a_tied_parameter_must_be_cut_alike_under_all_its_names() -> None:
    for message in run_ranks(tied_apart, 2):
        assert "embedding.weight and head.weight are one parameter" in message


def test_a_trained_parameter_outside_the_plan_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    with pytest.raises(IncompletePlanError, match=r"0\.weight is trained, but the plan does not say how it is sharded"):
        refuse_plain_parameters(model)
    refuse_plain_parameters(model.requires_grad_(False))


def test_a_plan_names_modules_that_are_there() -> None:
    with pytest.raises(IncompletePlanError, match="no haed"):
        apply_tensor_parallel(nn.Linear(2, 2), cast(DeviceMesh, None), {"haed": RowwiseParallel()})


@pytest.mark.parametrize(
    ("model", "degrees", "reason"),
    [
        ({"heads": 6, "dim": 48}, {"tensor": 4}, r"heads=6 does not divide by tensor=4; .* tensor=1 or 2"),
        ({"vocab_size": 257}, {"tensor": 2}, r"vocab_size=257 does not divide by tensor=2; .* tensor=1$"),
        ({"context": 129}, {"tensor": 2}, r"129 tokens does not divide by tensor=2; use 128 or 130"),
        ({"context": 100}, {"tensor": 2, "context": 4}, r"100 tokens does not divide by tensor=2 x 2 chunks x context=4; use 96 or 112"),
        ({"context": 8}, {"context": 8}, r"8 tokens does not divide by tensor=1 x 2 chunks x context=8; use 16 tokens"),
    ],
)
def test_sizes_that_do_not_divide_are_refused(model: dict[str, Any], degrees: dict[str, int], reason: str) -> None:
    assert re.search(reason, why_not_sharded(GptModel(**model), **degrees) or "")


def test_sizes_that_divide_are_not() -> None:
    assert why_not_sharded(GptModel(), tensor=4, context=4) is None
    assert why_not_sharded(GptModel(context=129)) is None
    assert common_divisors(divided_by_tensor(GptModel(heads=12, dim=768))) == [1, 2, 4]


class OfThree:
    """A mesh, as far as a refusal looks at it."""

    def size(self) -> int:
        return 3


def test_ranks_refuse_what_the_plan_would() -> None:
    with pytest.raises(CannotShardError, match="heads=4 does not divide by tensor=3"):
        shard(gpt.build(GptModel(layers=1)), tensor=cast(DeviceMesh, OfThree()))
