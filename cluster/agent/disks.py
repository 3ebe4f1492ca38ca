"""Identifies the folder and the machine behind a path, so that the coordinator can tell whether two nodes share it."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import psutil

#: File systems on disks of one machine. What is on any other may be seen by several machines.
LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"})
#: Below these lie the kernel's own file systems, which nobody saves in.
OF_THE_KERNEL = ("/proc", "/sys", "/dev", "/run")
#: What the NFS server of this machine exports now: a line for each folder and for those who may mount it.
EXPORTS = Path("/var/lib/nfs/etab")
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


def shared_mounts(exports: Path = EXPORTS) -> tuple[str, ...] | None:
    """The mount points of file systems that other machines may see, now, and the folders that this machine exports. None: they are too many to tell."""
    shared = sorted({mount for mount, kind in _file_systems().items() if kind not in LOCAL} | exported_folders(exports))
    return tuple(shared) if len(shared) <= MOST_MOUNTS else None


def own_mounts(exports: Path = EXPORTS) -> tuple[str, ...]:
    """The mount points of disks of this machine that lie in one of `shared_mounts`, now: of a machine whose root is a network file system for example."""
    shared = shared_mounts(exports) or ()
    local = [mount for mount, kind in _file_systems().items() if kind in LOCAL - {"overlay"} and mount not in shared]
    found = [mount for mount in local if any(Path(mount).is_relative_to(each) for each in shared)]
    return tuple(sorted(sorted(found, key=len)[:MOST_MOUNTS]))


def _file_systems() -> dict[str, str]:
    """The types of what is mounted, by mount point, without those of the kernel. Of several at one point the last one counts."""
    found = {each.mountpoint: each.fstype for each in psutil.disk_partitions(all=True)}
    return {mount: kind for mount, kind in found.items() if not any(Path(mount).is_relative_to(top) for top in OF_THE_KERNEL)}


def exported_folders(exports: Path = EXPORTS) -> set[str]:
    """The folders that the NFS server of this machine exports, as `exports` lists them; none where there is no server."""
    try:
        lines = exports.read_text(errors="replace").splitlines()
    except OSError:
        return set()
    return {re.sub(r"\\([0-7]{3})", lambda sign: chr(int(sign[1], 8)), line.split()[0]) for line in lines if line.startswith("/")}
