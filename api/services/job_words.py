"""Small facts about a job that several answers need in the same words."""

from __future__ import annotations

from api.schemas.common import Reason
from cluster import placement
from parallelism.plan import Coordinates
from training.spec.job import JobSpec


def model_of(spec: JobSpec) -> str:
    if spec.model is not None:
        return spec.model.kind
    return "entrypoint" if spec.entrypoint is not None else "script"


def strategy_of(spec: JobSpec, world_size: int) -> str:
    """With the axes of its mesh, where it has any but replicas: "fsdp, tensor 2 x shard 2 x replicate 2"."""
    if spec.script is not None:
        return "script"
    sizes = spec.parallelism.degrees(world_size).sizes
    if not spec.parallelism.shards and set(sizes) <= {"replicate"}:
        return spec.parallelism.strategy
    axes = [f"{axis} {size}" for axis, size in reversed(sizes.items())]
    return f"{spec.parallelism.strategy}, {' x '.join(axes) or 'shard 1'}"


def place_in_mesh(spec: JobSpec, world_size: int, rank: int) -> dict[str, int]:
    """Where a rank stands along each axis of more than one rank. A script arranges its ranks by itself."""
    if spec.script is not None or rank >= world_size:
        return {}
    return {str(axis): place for axis, place in Coordinates(spec.parallelism.degrees(world_size), rank).places.items()}


def reason_of(reason: placement.Reason) -> Reason:
    return Reason(code=reason.code, text=reason.text, missing=reason.missing, nearest_fit=reason.nearest_fit, next_step=reason.next_step)
