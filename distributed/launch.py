"""The place of a process that torchrun has started, or the agent of a script job: its device, and the group of its world.

What Paceline's own trainer is told by its agent is read here from torchrun's variables. There is no generation to be fenced off: the ranks
are started again as a whole.
"""

from __future__ import annotations

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from distributed.abort import Fence
from distributed.env import Position, rendezvous_address
from distributed.errors import LaunchError
from distributed.process_group import Axes, Group, SoloGroup, WorldGroup

#: Machines may be slow to start their ranks, one after another.
MEETING_TIMEOUT = timedelta(minutes=10)


def device_of(place: Position) -> torch.device:
    """The GPU with this process's local rank, or the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    devices = torch.cuda.device_count()
    if place.local_rank >= devices:
        raise LaunchError(
            f"local rank {place.local_rank} of {place.local_world_size} has no GPU of its own, there are {devices}; start {devices} ranks "
            "on this machine, or set CUDA_VISIBLE_DEVICES to nothing to train on CPUs"
        )
    device = torch.device("cuda", place.local_rank)
    torch.cuda.set_device(device)
    return device


def join_launched(place: Position, device: torch.device, axes: Axes) -> Group:
    """Meet the other ranks of `place`. A world of one has nobody to meet."""
    if dist.is_initialized():
        raise LaunchError(
            "this process is in a process group already; leave out dist.init_process_group() (Paceline makes the group), and Trainer in code "
            "that Paceline's own trainer runs"
        )
    if place.world_size == 1:
        return SoloGroup()
    if rendezvous_address() is None:
        raise LaunchError(
            f"WORLD_SIZE={place.world_size} but MASTER_ADDR or MASTER_PORT is not set: nobody says where the ranks meet; start them with "
            "torchrun, or unset WORLD_SIZE for a world of one"
        )
    fence = Fence()
    store, _, _ = next(rendezvous("env://", place.rank, place.world_size, timeout=MEETING_TIMEOUT))
    return WorldGroup(place.rank, place.world_size, device, store, fence, axes)
