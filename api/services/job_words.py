"""Small facts about a job that several answers need in the same words."""

from __future__ import annotations

from api.schemas.common import Reason
from cluster import placement
from training.spec import JobSpec


def model_of(spec: JobSpec) -> str:
    if spec.model is not None:
        return spec.model.kind
    return "entrypoint" if spec.entrypoint is not None else "script"


def strategy_of(spec: JobSpec, world_size: int) -> str:
    """With the axes of its mesh, where it has any but replicas: "fsdp, shard 2 x replicate 2"."""
    if spec.script is not None:
        return "script"
    if not spec.parallelism.shards:
        return spec.parallelism.strategy
    sizes = spec.parallelism.degrees(world_size)
    replicas = f" x replicate {sizes.replicate}" if sizes.replicate > 1 else ""
    return f"{spec.parallelism.strategy}, shard {sizes.shard}{replicas}"


def reason_of(reason: placement.Reason) -> Reason:
    return Reason(code=reason.code, text=reason.text, missing=reason.missing, nearest_fit=reason.nearest_fit, next_step=reason.next_step)
