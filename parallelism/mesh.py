"""The world of one generation as a DeviceMesh, over the generation's own process groups.

The axes, with the names that DeviceMesh users know:

    pipeline    pp              stages of layers
    replicate   dp_replicate    copies of the model on different data (DDP, the outer axis of HSDP)
    shard       dp_shard        parameters, gradients and optimizer state in shards on different data (FSDP, ZeRO-3)
    context     cp              each sequence in parts
    tensor      tp              matrices in parts

Ranks are numbered along the last axis first, so that the ranks of a tensor axis group are neighbours. Axes of size one are left out.
"""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from paceline.distributed import torch_private
from paceline.distributed.axis_process_group import AxisProcessGroup
from paceline.distributed.process_group import Axes, Group
from paceline.parallelism.plan import Degrees


def axis_group_ranks(degrees: Degrees) -> Axes:
    """Return for each axis the world ranks of all its axis groups. Axes of size one have none, nor have workers beside servers."""
    if degrees.servers:
        return {}
    world = rank_grid(degrees)
    return {axis: world.movedim(place, -1).reshape(-1, size).tolist() for place, (axis, size) in enumerate(degrees.sizes.items())}


def rank_grid(degrees: Degrees) -> torch.Tensor:
    """Return the world ranks as a tensor with one dimension for each axis of `Degrees.sizes`, in that order."""
    return torch.arange(degrees.world_size).reshape(tuple(degrees.sizes.values()))


def device_mesh(degrees: Degrees, group: Group, device: torch.device) -> DeviceMesh:
    """Return a DeviceMesh over the axis groups that `group` was joined with; needs two ranks or more. It lives as long as `group`.

    Hazard: torch caches the sharding of each operation on DTensors by meshes that compare equal, whatever their process groups are.
    Entries of earlier generations refer to destroyed groups and to this rank's old coordinates, and would be used for new tensors, such
    as an optimizer's state. So the cache is cleared here.
    """
    torch_private.clear_sharding_cache()
    axes = tuple(degrees.sizes)
    if device.type != "cpu":
        exclude_unseen(degrees, group)
    groups = [
        AxisProcessGroup(axis_group) if device.type == "cpu" else axis_group.process_group
        for axis_group in map(group.axis_groups.__getitem__, axes)
    ]
    return DeviceMesh.from_group(groups, device.type, mesh=rank_grid(degrees), mesh_dim_names=axes)


def exclude_unseen(degrees: Degrees, group: Group) -> None:
    """On GPUs, leave out of the reports what is not seen: torch gives to NCCL itself what tensors cut over ranks send, and FSDP gathers in streams of its
    own, so that nothing is known of when the computation waits for either."""
    group.traffic.exclude("tensor")
    group.exposure.is_whole = group.exposure.is_whole and degrees.shard * degrees.tensor == 1


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return the shard of a DTensor that this rank holds; a plain tensor is returned as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
