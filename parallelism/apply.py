"""Apply parallelisms to a plain model, in the one order that works. The model knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from paceline.distributed.process_group import Group
from paceline.parallelism.activation_checkpoint import checkpoint_activations
from paceline.parallelism.blocks import blocks_of
from paceline.parallelism.communication.reducers import BackendReducer, Reducer
from paceline.parallelism.data_parallel.replicated import Replicated
from paceline.parallelism.data_parallel.reproducible import Reproducible
from paceline.parallelism.deferred import materialize
from paceline.parallelism.fully_sharded.reproducible_shards import ReproducibleShards
from paceline.parallelism.fully_sharded.sharding import FullySharded, shard_in_units
from paceline.parallelism.mesh import device_mesh
from paceline.parallelism.options import ParallelizeOptions
from paceline.parallelism.parameter_server.served_model import ServedModel
from paceline.parallelism.plan import Degrees
from paceline.parallelism.tensor_context.shard_model import (
    CannotShardError,
    ModelSharding,
    ShardFunction,
    TensorParallelReplicas,
    shard_model,
)
from paceline.parallelism.tensor_context.tensor_parallel import preserve_ties
from paceline.parallelism.wrapped import SingleProcess, Wrapped


def parallelize(
    model: nn.Module,
    degrees: Degrees,
    device: torch.device,
    group: Group,
    *,
    reproducible: bool,
    shard: ShardFunction | None = None,
    choices: ParallelizeOptions = ParallelizeOptions(),
    reducer: Reducer | None = None,
) -> Wrapped:
    """Shard, wrap and move `model` for its world, and return what is to be called for training.

    `group`: the world that `degrees` describe, joined with its axis groups. `shard`: how this model is sharded over the tensor and the
    context axis. `reducer`: sums gradients over the replicas; None: the backend does. Where parameters are sharded they are replaced by
    others, so the optimizer is made afterwards. Raises `CannotShardError` if `shard` is None but needed, or cannot shard this model over so
    many ranks.
    """
    reducer = reducer or BackendReducer(group)
    mesh = sharding_mesh(degrees, group, device)
    sharding = shard_model(model, shard, degrees, mesh, group) if mesh and degrees.tensor * degrees.context > 1 else None
    local_batch = sharding.local_batch if sharding else None
    blocks = blocks_of(model)
    checkpoint_activations(blocks, choices.activation_checkpointing)
    if mesh and degrees.shard > 1:
        shard_in_units(model, blocks, mesh["shard"], device, group.axis_groups["shard"], choices)
        return ReproducibleShards(model, group, local_batch) if reproducible else FullySharded(model, group, local_batch, reducer)
    materialize(model, [model])
    model.to(device)  # a model that may be sharded is built on the host, even if this world has one rank
    if reproducible:
        return Reproducible(model, group)
    if local_batch and degrees.tensor > 1:
        return TensorParallelReplicas(model, group, local_batch)
    if degrees.world_size == 1:
        return SingleProcess(model)
    return Replicated(model, device, group, local_batch, reducer, choices.communication)


def parallelize_served(
    model: nn.Module, servers: int, next_step: Callable[[], int], device: torch.device, group: Group, choices: ParallelizeOptions
) -> ServedModel:
    """Move `model` to `device` and return it as one that the first `servers` ranks of `group` update. Raises `ProtocolError` if it has too
    few tensors for so many."""
    checkpoint_activations(blocks_of(model), choices.activation_checkpointing)
    model.to(device)
    return ServedModel(model, group, servers, next_step)


def parallelize_stages(
    model: nn.Module,
    stages: Sequence[nn.Module],
    *,
    degrees: Degrees,
    device: torch.device,
    group: Group,
    shard: ShardFunction | None,
    choices: ParallelizeOptions,
) -> ModelSharding:
    """Shard the `stages` of a pipeline that this rank has, over the other axes, and move them to `device`.

    `model` is what is left of the whole model: those stages. Returns how the stages are to be called. Raises
    `CannotShardError` as `parallelize` does.
    """
    mesh = sharding_mesh(degrees, group, device)
    sharding = shard_model(model, shard, degrees, mesh, group) if mesh and degrees.tensor * degrees.context > 1 else ModelSharding()
    if mesh is None or degrees.shard == 1:
        model.to(device)
        return sharding
    refuse_ties_between(stages)
    blocks = blocks_of(model)
    with preserve_ties(model):
        for stage in stages:
            inside = set(stage.modules())
            shard_in_units(
                stage, [block for block in blocks if block in inside], mesh["shard"], device, group.axis_groups["shard"], choices
            )
    return sharding


def refuse_ties_between(stages: Sequence[nn.Module]) -> None:
    """Raise `CannotShardError` if two stages of a rank share a parameter: each would shard a copy of its own, and one stay untrained."""
    owner: dict[nn.Parameter, int] = {}
    for number, stage in enumerate(stages):
        for name, parameter in stage.named_parameters():
            if owner.setdefault(parameter, number) != number:
                raise CannotShardError(
                    f"two stages of a rank share the parameter {name} of shape {list(parameter.shape)}, and each would shard a copy of its own; "
                    "use one stage on each rank (pipeline_schedule 1f1b or gpipe), leave shard at 1, or untie it"
                )


def sharding_mesh(degrees: Degrees, group: Group, device: torch.device) -> DeviceMesh | None:
    """Return the mesh of the world, or None if nothing is sharded but the pipeline's stages."""
    return device_mesh(degrees, group, device) if degrees.shard * degrees.tensor * degrees.context > 1 else None
