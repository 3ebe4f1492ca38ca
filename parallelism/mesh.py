"""The world as a mesh: which ranks lie along which axis, over the process groups of one generation, and gone with it."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from distributed.line_group import LineGroup
from distributed.process_group import Axes, Group
from parallelism.plan import Degrees


def lines(degrees: Degrees) -> Axes:
    """By axis, the ranks of each line along it. Axes of one rank have none."""
    world = grid(degrees)
    return {axis: world.movedim(place, -1).reshape(-1, size).tolist() for place, (axis, size) in enumerate(degrees.sizes.items())}


def grid(degrees: Degrees) -> torch.Tensor:
    """Ranks by their place in the mesh, one dimension for each axis of `Degrees.sizes`."""
    return torch.arange(degrees.world_size).reshape(tuple(degrees.sizes.values()))


def device_mesh(degrees: Degrees, group: Group, device: torch.device) -> DeviceMesh:
    """Over the lines that `group` was joined with; needs two ranks or more. Whatever is built on it goes before the group.

    Hazard: torch keeps what comes of each operation on DTensors by a mesh that compares equal, whatever its groups are. What it kept of
    earlier generations knows dead groups and this rank's old place, and would be given to new tensors: an optimizer's state, for one.
    """
    _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]
    axes = tuple(degrees.sizes)
    if device.type != "cpu":  # what tensors cut over ranks send there, torch gives to NCCL itself
        group.traffic.leave_out("tensor")
    groups = [LineGroup(line) if device.type == "cpu" else line.process_group for line in map(group.lines.__getitem__, axes)]
    return DeviceMesh.from_group(groups, device.type, mesh=grid(degrees), mesh_dim_names=axes)


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of it."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
