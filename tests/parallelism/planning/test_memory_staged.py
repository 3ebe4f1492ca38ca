"""The estimate of a pipeline's fullest rank beside what real steps took from torch's allocator."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism.mesh import axis_group_ranks
from paceline.parallelism.model_shape import CPU
from paceline.training.link import RankPlace
from paceline.training.planning.estimates import memory_of
from paceline.training.spec.job import JobSpec
from tests.allocations import STEPS, peak_bytes, train
from tests.ranks import run_ranks

TOLERANCE = 0.15
FULL, SELECTIVE = {"activation_checkpointing": "full"}, {"activation_checkpointing": "selective"}
PLANS: list[dict[str, Any]] = [
    {"pipeline_schedule": "1f1b"},
    {"pipeline_schedule": "1f1b"} | FULL,
    {"pipeline_schedule": "gpipe"},
    {"pipeline_schedule": "gpipe"} | FULL,
    {"pipeline_schedule": "interleaved_1f1b"},
    {"pipeline_schedule": "zero_bubble"},
    {"pipeline_schedule": "zero_bubble"} | FULL,
    {"pipeline_schedule": "zero_bubble"} | SELECTIVE,
    {"pipeline_schedule": "zero_bubble_v"},
    {"pipeline_schedule": "zero_bubble_v"} | FULL,
]


def spec_of(plan: dict[str, Any], precision: str = "fp32", **model: Any) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "staged",
            "model": {"kind": "gpt", "layers": 6, "dim": 64, "heads": 4, "context": 64} | model,
            "data": {"kind": "stdlib_text"},
            "resources": {"nodes": 2},
            "precision": precision,
            "parallelism": {"pipeline": 2} | plan,
            "training": {"steps": STEPS, "global_batch_size": 12, "micro_batch_size": 2},
        }
    )


def peak(world: RankPlace, document: dict[str, Any]) -> int:
    """Return the peak of one rank."""
    spec = JobSpec.model_validate(document)
    group = join(world, GroupAborter(), axis_group_ranks(spec.parallelism.degrees(world.world_size)))
    try:
        return peak_bytes(lambda: train(spec, group))
    finally:
        group.close()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: " ".join(plan.values()))
def test_the_fullest_rank(plan: dict[str, Any], precision: str) -> None:
    require_close(spec_of(plan, precision))


@pytest.mark.parametrize("schedule", ["interleaved_1f1b", "zero_bubble", "zero_bubble_v"])
def test_a_large_vocabulary_on_the_last_stage(schedule: str) -> None:
    require_close(spec_of({"pipeline_schedule": schedule}, vocab_size=2000))


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved_1f1b", "zero_bubble"])
def test_gradients_in_the_fixed_tree(schedule: str, replicas: int) -> None:
    resources = {"nodes": 2 * replicas}
    document = spec_of({"pipeline_schedule": schedule}).model_dump(mode="json") | {"reproducible": True, "resources": resources}
    require_close(JobSpec.model_validate(document))


def require_close(spec: JobSpec) -> None:
    measured = max(run_ranks(peak, spec.world_size, spec.model_dump(mode="json")))
    found = memory_of(spec, CPU)
    assert found is not None
    assert found.total == pytest.approx(measured, rel=TOLERANCE)
