"""Identifies the folder and the machine behind a path, so that the coordinator can tell whether two nodes share it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import psutil

#: File systems on disks of one machine. What is on any other may be seen by several machines.
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"})
#: Below these lie the kernel's own file systems, which nobody saves in.
OF_THE_KERNEL = ("/proc", "/sys", "/dev", "/run")
#: More mount points than these are not told.
MOST_MOUNTS = 256
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def disk_of(folder: Path, boot_id: Path = BOOT_ID) -> str | None:
    """The identity of a folder on a disk of this machine: equal for two paths to it, different for any other folder here or elsewhere.

    None where another machine may see the same folder, and where that cannot be told. The kernel's boot id stands for the machine: containers
    on it share it, while copies of a virtual machine, which have the same /etc/machine-id, do not.
    """
    try:
        path = folder.resolve(strict=True)
        found = path.stat()
        if file_system_of(path) not in LOCAL:
            return None
    except OSError:
        return None
    machine = machine_of(boot_id)
    return hashlib.sha256(f"{machine}:{found.st_dev}:{found.st_ino}".encode()).hexdigest()[:32] if machine else None


def machine_of(boot_id: Path = BOOT_ID) -> str | None:
    """The identity of this machine: equal for all agents on it, also in containers. None: the kernel does not tell."""
    try:
        return boot_id.read_text().strip() or None
    except OSError:
        return None


def file_system_of(path: Path) -> str:
    """The type of the file system that an absolute path lies on; empty where it is not known."""
    mounts = {partition.mountpoint: partition.fstype for partition in psutil.disk_partitions(all=True)}  # the last one covers those before
    return next((mounts[str(place)] for place in (path, *path.parents) if str(place) in mounts), "")


def shared_mounts() -> tuple[str, ...] | None:
    """The mount points of file systems that other machines may see, now. None: they are too many to tell."""
    found = {each.mountpoint for each in psutil.disk_partitions(all=True) if each.fstype not in LOCAL}
    shared = sorted(mount for mount in found if not any(mount == top or mount.startswith(f"{top}/") for top in OF_THE_KERNEL))
    return tuple(shared) if len(shared) <= MOST_MOUNTS else None
