"""Freeing a rank that is blocked in a group whose world is over, from another of its threads.

gloo's own abort does nothing. What ends a blocked call is the end of its sockets: those of a group are found by comparing
the process's sockets before and after it was built. Now and then (in 2 of 92 kills) gloo closes them and still forgets to
wake a call, so nobody waits for gloo itself but for promises that a fence can break. NCCL has an abort of its own.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import socket
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from distributed.calls import Call, Calls
from distributed.errors import GenerationOverError
from distributed.lent import Lent
from distributed.reach import Place, Presence
from distributed.waiters import Waiters

_DESCRIPTORS = "/proc/self/fd"
#: What is done is let go of at once, but for a machine that is busy elsewhere.
THREADS_SECONDS = 5.0
THREADS_POLL_SECONDS = 0.0005


class Socket(NamedTuple):
    """The inode tells whether the descriptor still means the same socket."""

    descriptor: int
    inode: int


class Fence:
    """Around one generation's group. Made before anything of it is opened, so that whatever comes after is the group's own."""

    def __init__(self, presence: Presence | None = None) -> None:
        self.presence = presence or Presence()
        self._others = connected_sockets()
        self._own: frozenset[Socket] | None = None  # None while the group is being built
        self._lock = threading.Lock()
        self.struck = threading.Event()  # the group is over, and so is every wait for it
        self.built = threading.Event()  # or given up: nobody is inside torch's rendezvous, the one place that no socket frees
        self.left = threading.Event()  # this rank is out of the generation
        self.calls = Calls()
        self.peers: dict[int, Place] = {}  # the other ranks' landmarks, once they are known
        self.presences: dict[int, Place] = {}  # ... and theirs
        self._promises: dict[int, Future[Any]] = {}
        self._waiters = Waiters()
        self.lent = Lent()

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

    def guard(self, work: Any, call: Call, values: Tensor) -> Future[Tensor]:
        """`values` once an asynchronous collective is done, which has `lent` tensors alone: fails when that fails, or when the fence is struck."""
        promise = self._promise()

        def keep(theirs: Future[Any]) -> None:
            self.calls.done(call)
            self._keep(promise, failure_of(theirs) or values)

        work.get_future().add_done_callback(keep)
        return promise.then(unwrap)

    def wait(self, works: Sequence[Any]) -> None:
        """The same for point-to-point transfers: gloo gives no futures for those, so another thread waits for them. By the time that the
        caller hears of their end that thread has let go of them, and their memory is the caller's to free."""
        promise, pending = self._promise(), deque(works)
        self._waiters.do(lambda: self._keep(promise, end_of(pending)))
        promise.then(unwrap).wait()

    def attend(self, work: concurrent.futures.Future[Any]) -> None:
        """Until another thread of this process has done it, well or not: nobody stays for its sake when the generation is over."""
        promise = self._promise()
        work.add_done_callback(lambda _: self._keep(promise, None))
        promise.then(unwrap).wait()

    def await_threads(self) -> None:
        """Once every call is done: until no thread is busy with one. Who ends the interpreter before that ends in the middle of theirs."""
        deadline = time.monotonic() + THREADS_SECONDS
        while not (self.lent.is_back and self._waiters.are_idle) and time.monotonic() < deadline:
            time.sleep(THREADS_POLL_SECONDS)

    def _promise(self) -> Future[Any]:
        promise: Future[Any] = Future()
        with self._lock:
            self._promises[id(promise)] = promise
        if self.struck.is_set():  # before the promise was there to be broken
            self._keep(promise, GenerationOverError("the generation is over: a newer one has begun"))
        return promise

    def _keep(self, promise: Future[Any], outcome: Any) -> None:
        """Once: by the collective, or by whoever strikes."""
        with self._lock:
            mine = self._promises.pop(id(promise), None)
        if mine is not None:
            mine.set_result(outcome)

    def strike(self) -> None:
        """Break whatever waits in the group. From any thread, any number of times."""
        self.struck.set()
        with self._lock:
            now = connected_sockets()
            for each in now - self._others if self._own is None else now & self._own:
                shut_down(each)
            promises = list(self._promises.values())
        for promise in promises:
            self._keep(promise, GenerationOverError("the generation is over: the group was broken off"))
        abort_nccl()


def failure_of(theirs: Future[Any]) -> RuntimeError | None:
    try:
        theirs.value()
    except RuntimeError as error:
        return error
    return None


def wait_for(works: Sequence[Any]) -> None:
    for work in works:
        work.wait()


def end_of(works: deque[Any]) -> RuntimeError | None:
    """Of all of them; each is let go when it is done."""
    try:
        while works:
            works.popleft().wait()
    except RuntimeError as error:
        return error
    return None


def unwrap(promise: Future[Any]) -> Any:
    """An outcome that is an error is raised here, where torch makes it the error of the future that it waits for."""
    outcome = promise.value()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


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
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(which.descriptor)) as copy:  # gone already: what was wanted
        copy.shutdown(socket.SHUT_RDWR)
