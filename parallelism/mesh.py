"""The world as a mesh: which ranks lie along which axis, over the process groups of one generation, and gone with it."""

from __future__ import annotations

import dataclasses

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from distributed.process_group import Axes, Group
from parallelism.plan import Degrees

#: From the axis along which ranks are furthest apart to the one whose ranks are neighbours, most often on one machine: stages of a
#: pipeline say least to each other, and tensor parts the most.
AXES = ("pipeline", "replicate", "shard", "context", "tensor")


def sizes(degrees: Degrees) -> dict[str, int]:
    """Axes along which there is more than one rank, in the order of `AXES`."""
    every = dataclasses.asdict(degrees)
    return {axis: every[axis] for axis in AXES if every[axis] > 1}


def lines(degrees: Degrees) -> Axes:
    """By axis, the ranks of each line along it. Axes of one rank have none."""
    world = grid(degrees)
    return {axis: world.movedim(place, -1).reshape(-1, size).tolist() for place, (axis, size) in enumerate(sizes(degrees).items())}


def grid(degrees: Degrees) -> torch.Tensor:
    """Ranks by their place in the mesh, one dimension for each axis of `sizes`."""
    return torch.arange(degrees.world_size).reshape(tuple(sizes(degrees).values()))


def device_mesh(degrees: Degrees, group: Group, device: torch.device) -> DeviceMesh:
    """Over the lines that `group` was joined with; needs two ranks or more. Whatever is built on it goes before the group."""
    axes = tuple(sizes(degrees))
    groups = [group.lines[axis].process_group for axis in axes]
    return DeviceMesh.from_group(groups, device.type, mesh=grid(degrees), mesh_dim_names=axes)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
