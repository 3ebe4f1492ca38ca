"""Join the world of a process that torchrun, or the agent of a script job, has started.

Paceline's own trainer gets its position from the agent; here it is read from torchrun's variables. There are no generations: the ranks of
such a world are restarted as a whole.
"""

from __future__ import annotations

import atexit
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from paceline.distributed.abort import GroupAborter
from paceline.distributed.env import Position, rendezvous_address
from paceline.distributed.errors import LaunchError
from paceline.distributed.process_group import Axes, Group
from paceline.distributed.solo_group import SoloGroup
from paceline.distributed.torch_private import warn_if_untested
from paceline.distributed.world_group import WorldGroup

#: Machines may be slow to start their ranks, one after another.
MEETING_TIMEOUT = timedelta(minutes=10)


def device_of(place: Position) -> torch.device:
    """Return the GPU with this process's local rank, or the CPU where there is no GPU. Raises `LaunchError` if there are too few GPUs."""
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


@dataclass(frozen=True)
class LaunchedWorld:
    """The ranks of a launched world, which have found each other and have no group yet. A world of one has neither store nor aborter."""

    place: Position
    store: Store | None = None
    aborter: GroupAborter | None = None

    def numbers(self, name: str, own: int) -> list[int]:
        """Return a number of every rank, in the order of the ranks. Collective; each `name` once."""
        if self.store is None:
            return [own]
        self.store.set(f"{name}/{self.place.rank}", str(own))
        return [int(self.store.get(f"{name}/{rank}")) for rank in range(self.place.world_size)]

    def join(self, device: torch.device, axes: Axes) -> Group:
        """Return the group of all ranks. Collective."""
        if self.store is None or self.aborter is None:
            return SoloGroup()
        group = WorldGroup(self.place.rank, self.place.world_size, device, self.store, self.aborter, axes)
        atexit.register(self.aborter.wait_for_threads)  # a program that fails, or forgets to, does not leave by `barrier_and_leave`
        return group


def meet(place: Position) -> LaunchedWorld:
    """Meet the other ranks of the world of `place`. Raises `LaunchError` where the environment does not allow it."""
    warn_if_untested()
    if dist.is_initialized():
        raise LaunchError(
            "this process is in a process group already; leave out dist.init_process_group() (Paceline makes the group), and Trainer in code "
            "that Paceline's own trainer runs"
        )
    if place.world_size == 1:
        return LaunchedWorld(place)
    if rendezvous_address() is None:
        raise LaunchError(
            f"WORLD_SIZE={place.world_size} but MASTER_ADDR or MASTER_PORT is not set, so the ranks do not know where to meet; start them with "
            "torchrun, or unset WORLD_SIZE for a world of one"
        )
    aborter = GroupAborter()
    store, _, _ = next(rendezvous("env://", place.rank, place.world_size, timeout=MEETING_TIMEOUT))
    return LaunchedWorld(place, store, aborter)
