"""Parallelisms applied to a plain model, in the one order that works. The model knows nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from distributed.process_group import Group
from parallelism.activation_checkpoint import checkpoint_activations
from parallelism.blocks import blocks_of
from parallelism.cut.cut_model import CutReplicas, Cutting, Shard, cut_model
from parallelism.cut.tensor_parallel import still_tied
from parallelism.data_parallel import Alone, Replicated, Wrapped
from parallelism.deferred import materialize
from parallelism.fully_sharded import FullySharded, shard_in_units
from parallelism.mesh import device_mesh
from parallelism.plan import Choices, Degrees
from parallelism.reproducible import Reproducible, ReproducibleShards


def parallelize(
    model: nn.Module,
    degrees: Degrees,
    device: torch.device,
    group: Group,
    *,
    reproducible: bool,
    shard: Shard | None = None,
    choices: Choices = Choices(),
) -> Wrapped:
    """Needs the group of the world that `degrees` describe, joined with the lines of its mesh. Before the optimizer is made, where the
    model is in parts: its parameters are others afterwards. `shard`: how this model is cut."""
    mesh = mesh_of_parts(degrees, group, device)
    cutting = cut_model(model, shard, degrees, mesh, group) if mesh and degrees.tensor * degrees.context > 1 else None
    own_part = cutting.own_part if cutting else None
    blocks = blocks_of(model)
    checkpoint_activations(blocks, choices.activation_checkpointing)
    if mesh and degrees.shard > 1:
        shard_in_units(model, blocks, mesh["shard"], device, group.lines["shard"], choices)
        return (ReproducibleShards if reproducible else FullySharded)(model, group, own_part)
    materialize(model, [model])
    model.to(device)  # one that is to be in parts is built on the host, and this world may be too small for that
    if reproducible:
        return Reproducible(model, group)
    if own_part and degrees.tensor > 1:
        return CutReplicas(model, group, own_part)
    return Replicated(model, device, group, own_part) if degrees.world_size > 1 else Alone(model)


def parallelize_stages(
    model: nn.Module,
    stages: Sequence[nn.Module],
    *,
    degrees: Degrees,
    device: torch.device,
    group: Group,
    shard: Shard | None,
    choices: Choices,
) -> Cutting:
    """The same for the ranks that have the same `stages` of a pipeline, which are what is left of `model`. The answer says how it is called."""
    mesh = mesh_of_parts(degrees, group, device)
    cutting = cut_model(model, shard, degrees, mesh, group) if mesh and degrees.tensor * degrees.context > 1 else Cutting()
    if mesh is None or degrees.shard == 1:
        model.to(device)
        return cutting
    blocks = blocks_of(model)
    with still_tied(model):
        for stage in stages:
            inside = set(stage.modules())
            shard_in_units(stage, [block for block in blocks if block in inside], mesh["shard"], device, group.lines["shard"], choices)
    return cutting


def mesh_of_parts(degrees: Degrees, group: Group, device: torch.device) -> DeviceMesh | None:
    """None: nothing but replicas and stages."""
    return device_mesh(degrees, group, device) if degrees.shard * degrees.tensor * degrees.context > 1 else None
