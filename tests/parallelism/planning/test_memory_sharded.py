"""The estimate beside what plain `fully_shard` took from torch's allocator, with every block a unit of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch.distributed.fsdp import fully_shard

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism.model_shape import NumberFormats
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.memory import memory
from paceline.training.builtin import next_token_loss
from paceline.training.link import RankPlace
from paceline.training.models.catalog import shape_of
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.optim.optimizers import build_optimizer
from paceline.training.planning.estimates import setup_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from tests.allocations import STEPS, Noise, peak_bytes
from tests.ranks import run_ranks

TOLERANCE = 0.15


def spec_of(**model: Any) -> JobSpec:
    fields = {"layers": 4, "dim": 96, "heads": 4, "context": 32} | model
    return JobSpec.model_validate(
        {
            "name": "sharded",
            "model": {"kind": "gpt"} | fields,
            "data": {"kind": "stdlib_text"},
            "resources": {"nodes": 2},
            "reproducible": False,
            "training": {"steps": STEPS, "global_batch_size": 8, "micro_batch_size": 2},
        }
    )


def trained(world: RankPlace, document: dict[str, Any], reshard: bool) -> int:
    """Return the peak of one rank."""
    group = join(world, GroupAborter())
    try:
        return peak_bytes(lambda: train(JobSpec.model_validate(document), reshard))
    finally:
        group.close()


def train(spec: JobSpec, reshard: bool) -> None:
    assert isinstance(spec.model, GptModel)
    model = gpt.build(spec.model)
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard)
    fully_shard(model)
    optimizer, data = build_optimizer(spec.optimizer, model), Noise(spec.model)
    for _ in range(STEPS):
        for _ in range(setup_of(spec).assignment.max_per_rank):
            loss, _ = next_token_loss(model, data.of(derived.micro_batch_size(spec)))
            loss.backward()  # type: ignore[no-untyped-call]
            del loss
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize("reshard", [True, False])
@pytest.mark.parametrize("model", [{}, {"vocab_size": 1000, "dim": 48}])
def test_two_shards(model: dict[str, Any], reshard: bool) -> None:
    spec = spec_of(**model)
    assert spec.model is not None
    setup = replace(setup_of(spec), degrees=Degrees(shard=2), reshard_after_forward=reshard, least_in_unit=1)
    measured = max(run_ranks(trained, 2, spec.model_dump(mode="json"), reshard))
    shape = shape_of(spec.model, spec.data, NumberFormats())
    assert shape is not None
    assert memory(shape, setup).total == pytest.approx(measured, rel=TOLERANCE)
