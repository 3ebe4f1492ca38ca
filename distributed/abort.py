"""Freeing a rank that is blocked in a group whose world is over, from another of its threads.

gloo's own abort does nothing: what ends a blocked call is the end of its sockets. Those of a group are found by comparing
the process's sockets before and after it was built. NCCL has an abort of its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from collections.abc import Iterator
from typing import NamedTuple

import torch.distributed as dist

_DESCRIPTORS = "/proc/self/fd"


class Socket(NamedTuple):
    """The inode tells whether the descriptor still means the same socket."""

    descriptor: int
    inode: int


class Fence:
    """Around one generation's group. Made before anything of it is opened, so that whatever comes after is the group's own."""

    def __init__(self) -> None:
        self._others = connected_sockets()
        self._own: frozenset[Socket] | None = None  # None while the group is being built
        self._lock = threading.Lock()
        self.struck = threading.Event()  # the group is over, and so is every wait for it
        self.built = threading.Event()  # or given up: nobody is inside torch's rendezvous, the one place that no socket frees

    def complete(self) -> None:
        """The group stands: sockets opened from now on are somebody else's."""
        with self._lock:
            self._own = connected_sockets() - self._others
        self.built.set()

    def leave(self) -> None:
        """Building has ended, one way or the other: a group that does not stand by now has no sockets."""
        with self._lock:
            self._own = self._own or frozenset()
        self.built.set()

    def strike(self) -> None:
        """Break whatever waits in the group. From any thread, any number of times."""
        self.struck.set()
        with self._lock:
            now = connected_sockets()
            for each in now - self._others if self._own is None else now & self._own:
                shut_down(each)
        abort_nccl()


def abort_nccl() -> None:
    """Of a group over gloo alone there is nothing to abort."""
    if not dist.is_initialized() or not dist.is_nccl_available() or "nccl" not in str(dist.get_backend_config()):
        return
    dist.distributed_c10d._abort_process_group()


def connected_sockets() -> frozenset[Socket]:
    """This process's TCP sockets but for listening ones: gloo ends the process when its listener is shut down."""
    return frozenset(_connected())


def _connected() -> Iterator[Socket]:
    for name in os.listdir(_DESCRIPTORS):
        with contextlib.suppress(OSError):  # closed since it was listed
            descriptor = int(name)
            found = os.stat(f"{_DESCRIPTORS}/{name}")
            if stat.S_ISSOCK(found.st_mode) and _carries_tcp(descriptor):
                yield Socket(descriptor, found.st_ino)


def _carries_tcp(descriptor: int) -> bool:
    with socket.socket(fileno=os.dup(descriptor)) as copy:
        is_tcp = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM
        return is_tcp and not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)


def shut_down(which: Socket) -> None:
    """Both directions, without taking the descriptor from its owner, who then sees its peer as gone."""
    with contextlib.suppress(OSError):  # gone already, which is what was wanted
        with socket.socket(fileno=os.dup(which.descriptor)) as copy:
            copy.shutdown(socket.SHUT_RDWR)
