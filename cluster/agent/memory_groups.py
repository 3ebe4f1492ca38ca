"""A control group (cgroup v2) for each rank, with a memory limit of its own: `--memory-limit`.

    <the agent's group>/paceline-agent      agent and spawner: a group with limits below it may hold no process itself
    <the agent's group>/paceline-<rank>     one rank and all it starts, wherever that goes; the kernel ends all of it together

The kernel's documentation of these files: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path

from paceline.cluster.agent.errors import MemoryLimitError

#: A younger group may just be about to get its first process.
LEFT_BEHIND_SECONDS = 60.0
_OWN = "paceline-agent"
_MOUNT = re.compile(r"^\S+ (\S+) cgroup2 ", re.MULTILINE)
_GROUP = re.compile(r"^0::(\S+)$", re.MULTILINE)
_OOM_KILLS = re.compile(r"^oom_kill (\d+)$", re.MULTILINE)


def divide_own_group(limit: int, proc: Path = Path("/proc")) -> Path:
    """Move this process into a group of its own below its present one, so that ranks can have groups beside it. Returns the parent group.

    Raises MemoryLimitError where this machine, or this process's rights, do not allow a limit."""
    mount, own = _MOUNT.search((proc / "self/mounts").read_text()), _GROUP.search((proc / "self/cgroup").read_text())
    if mount is None or own is None:
        raise _refusal(limit, "this machine has no control groups of version 2")
    group = Path(mount[1], own[1].lstrip("/"))
    group = group.parent if group.name == _OWN else group
    try:
        if "memory" not in (group / "cgroup.controllers").read_text().split():
            raise _refusal(limit, f"{group} does not control memory")
        (group / _OWN).mkdir(exist_ok=True)
        (group / _OWN / "cgroup.procs").write_text(str(os.getpid()))
        (group / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        raise _refusal(limit, str(error)) from error
    return group


def _refusal(limit: int, why: str) -> MemoryLimitError:
    return MemoryLimitError(
        f"--memory-limit {limit >> 20}MiB cannot be kept: {why}. Start the agent in a control group that it may divide, e.g. by "
        "systemd-run --user --scope -p Delegate=yes paceline worker ..., or as a service with Delegate=yes; or leave --memory-limit out"
    )


class MemoryGroups:
    """The groups of a spawner's ranks. `parent` is the group that `divide_own_group` returned."""

    def __init__(self, parent: Path, limit: int) -> None:
        self._parent, self._limit = parent, limit
        self._ended: list[Path] = []

    def create(self, name: str) -> Path:
        """Make an empty group with the limit. Raises OSError."""
        self._remove_left_behind()
        group = self._parent / f"paceline-{name}"
        group.mkdir(exist_ok=True)
        (group / "memory.max").write_text(str(self._limit))
        for file, value in (("memory.swap.max", "0"), ("memory.oom.group", "1")):
            if (group / file).exists():  # a kernel without swap accounting, or before 4.19, lacks them
                (group / file).write_text(value)
        return group

    def end(self, group: Path) -> bool:
        """Kill the processes left in the group, and remove it as soon as they are gone. Returns whether the limit had a process of the
        group killed."""
        try:
            kills = _OOM_KILLS.search((group / "memory.events").read_text())
            (group / "cgroup.kill").write_text("1")
        except OSError:  # a kernel before 5.14 cannot kill a group: strays are found one by one
            kills = None
        self._ended.append(group)
        self._ended = [each for each in self._ended if not _removed(each)]
        return kills is not None and kills[1] != "0"

    def _remove_left_behind(self) -> None:
        """Remove empty groups that were not removed at their end: a process was still in them, or whose they were was killed itself."""
        for group in self._parent.glob("paceline-*"):
            with contextlib.suppress(FileNotFoundError):
                if group.name != _OWN and time.time() - group.stat().st_mtime > LEFT_BEHIND_SECONDS:
                    _removed(group)


def enter(group: Path) -> None:
    """Move a forked child into the group, before any of the rank's code runs. Raises OSError."""
    (group / "cgroup.procs").write_text("0")


def _removed(group: Path) -> bool:
    """Remove a group. Returns False while a process is still in it."""
    with contextlib.suppress(FileNotFoundError):
        try:
            group.rmdir()
        except OSError:
            return False
    return True
