"""The memory estimate beside what real steps take from torch's CPU allocator, under every strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism import mesh
from paceline.parallelism.model_shape import CPU as CPU_KERNELS
from paceline.training.link import RankPlace
from paceline.training.planning.estimates import memory_of
from paceline.training.spec.job import JobSpec
from scripts.bench.figures import Figure
from scripts.bench.parallel.workload import MODEL, spec_of
from tests.allocations import peak_bytes, train
from tests.ranks import run_ranks

GOAL = 0.15
MICRO_BATCH = 2
TIMEOUT_SECONDS = 300.0


def plan(ranks: int, strategy: str, *, precision: str = "fp32", reproducible: bool = False, **parallelism: Any) -> JobSpec:
    how = {"strategy": strategy} | parallelism
    return spec_of(MODEL, ranks, MICRO_BATCH, parallelism=how, precision=precision, reproducible=reproducible)


def plans() -> dict[str, JobSpec]:
    return {
        "single": plan(1, "single"),
        "single in bf16": plan(1, "single", precision="bf16"),
        "single, selective checkpointing": plan(1, "single", activation_checkpointing="selective"),
        "single, full checkpointing": plan(1, "single", activation_checkpointing="full"),
        "ddp": plan(2, "ddp"),
        "ddp, reproducible": plan(2, "ddp", reproducible=True),
        "fsdp": plan(2, "fsdp"),
        "fsdp in bf16": plan(2, "fsdp", precision="bf16"),
        "fsdp, whole parameters kept": plan(2, "fsdp", reshard_after_forward=False),
        "fsdp, full checkpointing": plan(2, "fsdp", activation_checkpointing="full"),
        "fsdp, offloaded": plan(2, "fsdp", cpu_offload=True),
        "replicas of shards": plan(4, "fsdp", replicate=2),
        "tensor": plan(2, "ddp", tensor=2),
        "context": plan(2, "ddp", context=2),
        "1f1b pipeline": plan(2, "ddp", pipeline=2),
        "gpipe pipeline": plan(2, "ddp", pipeline=2, pipeline_schedule="gpipe"),
        "interleaved pipeline": plan(2, "ddp", pipeline=2, pipeline_schedule="interleaved_1f1b"),
        "zero-bubble pipeline": plan(2, "ddp", pipeline=2, pipeline_schedule="zero_bubble"),
        "zero-bubble V pipeline": plan(2, "ddp", pipeline=2, pipeline_schedule="zero_bubble_v"),
    }


#: One of each kind.
QUICK = ("single", "ddp", "fsdp", "1f1b pipeline")


def measure(names: Sequence[str] | None = None) -> list[Figure]:
    errors = {name: error(spec) for name, spec in plans().items() if names is None or name in names}
    told = ", ".join(f"{name} {found:+.3f}" for name, found in errors.items())
    worst = max(errors, key=lambda name: abs(errors[name]))
    size = abs(errors[worst])
    reference = f"the worst, {worst}; at most {GOAL}. Estimate over measured, less 1: {told}"
    return [Figure("memory_estimate_error", "ratio", size, size, len(errors), reference)]


def error(spec: JobSpec) -> float:
    """Return the relative error of the estimate: estimated over measured bytes of the fullest rank, less 1."""
    estimate = memory_of(spec, CPU_KERNELS)
    assert estimate is not None  # a model of our own
    measured = max(run_ranks(peak, spec.world_size, spec.model_dump(mode="json"), timeout=TIMEOUT_SECONDS))
    return float(estimate.total / measured - 1)


def peak(world: RankPlace, document: dict[str, Any]) -> int:
    """Bytes of one rank."""
    torch.set_num_threads(1)
    spec = JobSpec.model_validate(document)
    group = join(world, GroupAborter(), mesh.axis_group_ranks(spec.parallelism.degrees(world.world_size)))
    return peak_bytes(lambda: train(spec, group))
