"""Abort the process group of a generation from another thread, and free the training thread that is blocked in it.

`GroupAborter` is made for each generation before any of its connections are opened. A thread that learns that the generation is over (a
message of the agent, the watchdog) calls `abort`; every wait that went through the aborter then raises `GenerationOverError`.

gloo has no working abort. A blocked gloo call ends when its sockets are shut down: the sockets of a group are found by comparing the
process's sockets before and after the group was built. Now and then (in 2 of 92 kills) gloo closes its sockets and still does not wake a
call, so the training thread never waits for gloo itself, but for futures that the aborter can fail. NCCL has an abort of its own.
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
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch.distributed as dist
from torch import Tensor
from torch.futures import Future

from paceline.distributed import torch_private
from paceline.distributed.calls import Call, Calls
from paceline.distributed.errors import GenerationOverError
from paceline.distributed.in_flight import InFlightTensors
from paceline.distributed.probes import Endpoint, ProcessProbePort
from paceline.distributed.waiter_pool import TasksInOrder, WaiterPool

_DESCRIPTORS = "/proc/self/fd"
#: Threads release finished work at once, unless the machine is busy.
THREADS_SECONDS = 5.0
THREADS_POLL_SECONDS = 0.0005
ABORTED = "the generation is over: its group was aborted"


class Socket(NamedTuple):
    """A connected socket of this process. The inode tells whether the descriptor still refers to the same socket."""

    descriptor: int
    inode: int


class GroupAborter:
    """Aborts one generation's process group and all waits in it.

    Create it before anything of the group is opened: every connection that appears between that and `complete_rendezvous` belongs to the
    group and is shut down by `abort`.
    """

    def __init__(self, process_probe_port: ProcessProbePort | None = None) -> None:
        self.process_probe_port = process_probe_port or ProcessProbePort()
        self._others = connected_sockets()  # sockets that existed before the group
        self._own: frozenset[Socket] | None = None  # sockets of the group; None while it is being built
        self._lock = threading.Lock()
        self.aborted = threading.Event()  # the group is over; every wait in it fails
        self.rendezvous_done = threading.Event()  # or failed: this rank is not inside torch's rendezvous, the one wait that no socket ends
        self.exited = threading.Event()  # this rank has left the generation
        self.calls = Calls()
        self.host_probes: dict[int, Endpoint] = {}  # by rank, the probe ports of the other ranks' machines, once they are known
        self.process_probes: dict[int, Endpoint] = {}  # by rank, the probe ports of the other ranks' processes
        self._promises: dict[int, Future[Any]] = {}
        self._waiters = WaiterPool()
        self._in_order = TasksInOrder(self._waiters)
        self.in_flight = InFlightTensors()

    def complete_rendezvous(self) -> None:
        """Record the group's sockets: the group is built, and sockets opened from now on do not belong to it."""
        with self._lock:
            self._own = connected_sockets() - self._others
        self.rendezvous_done.set()

    def end_rendezvous(self) -> None:
        """Mark the rendezvous as ended, whether it succeeded or failed. A group that is not built by now has no sockets."""
        with self._lock:
            self._own = self._own or frozenset()
        self.rendezvous_done.set()

    def abortable_future(self, work: Any, call: Call, values: Tensor) -> Future[Tensor]:
        """Return a future of `values` that is set when the collective `work` ends, and fails when it fails or the group is aborted.

        `work` must have been given tensors from `in_flight` only. `call` is the numbered call that waits for it.
        """
        promise = self._new_promise()

        def resolve(finished: Future[Any]) -> None:
            self.calls.done(call)
            self._resolve(promise, failure_of(finished) or values)

        work.get_future().add_done_callback(resolve)
        return promise.then(unwrap)

    def wait(self, works: Sequence[Any]) -> None:
        """Wait for point-to-point transfers. Raises `GenerationOverError` if the group is aborted, else what the first failed one raised.

        gloo gives no futures for transfers, so another thread waits for them. When this method returns, that thread has released them,
        and the caller may free their memory.
        """
        promise, pending = self._new_promise(), deque(works)
        self._waiters.submit(lambda: self._resolve(promise, first_error(pending)))
        promise.then(unwrap).wait()

    def wait_in_turn(self, works: Sequence[Any], then: Callable[[], Sequence[Any]]) -> Future[None]:
        """Wait in another thread for the transfers `works`, and then for those that `then` starts there.

        The returned future is done when these are. It fails with what the first failed one raised, or, once the group is aborted, with
        `GenerationOverError`; `then` is not called any more after that.
        """
        promise, pending = self._new_promise(), deque(works)

        def run() -> None:
            error: Exception | None = first_error(pending)
            if error is None:
                try:
                    self._require_generation()
                    pending.extend(then())
                except (RuntimeError, ValueError) as raised:  # ValueError: the process group is destroyed
                    error = RuntimeError(str(raised))
                else:
                    error = first_error(pending)
            self._resolve(promise, error)

        self._waiters.submit(run)
        return promise.then(unwrap)

    def run_in_order(self, task: Callable[[], None], call: Call, values: Tensor) -> Future[Tensor]:
        """Run `task` in another thread, after those given before it. Returns a future of `values` that is set when it has returned, and fails
        when it has raised or the group is aborted. `call` is the numbered call that waits for it.
        """
        promise = self._new_promise()

        def run() -> None:
            outcome: Tensor | Exception = values
            try:
                self._require_generation()
                task()
            except Exception as error:  # noqa: BLE001 - raised in the thread that waits for the future
                outcome = error
            self.calls.done(call)
            self._resolve(promise, outcome)

        self._in_order.submit(run)
        return promise.then(unwrap)

    def wait_for_future(self, work: concurrent.futures.Future[Any]) -> None:
        """Wait until another thread of this process is done with `work`, whether it succeeded or failed.

        Raises `GenerationOverError` if the group is aborted before that.
        """
        promise = self._new_promise()
        work.add_done_callback(lambda _: self._resolve(promise, None))
        promise.then(unwrap).wait()

    def wait_for_tasks_in_order(self) -> None:
        """Wait, for `THREADS_SECONDS` at most, until the tasks of `run_in_order` have ended. Call it once the group is aborted: they fail then."""
        done = threading.Event()
        self._in_order.submit(done.set)
        done.wait(THREADS_SECONDS)

    def wait_for_threads(self) -> None:
        """Wait, for `THREADS_SECONDS` at most, until no thread of gloo's or of the waiter pool is busy. Call it once every call is done.

        An interpreter that exits earlier exits in the middle of such a thread's work, which kills the process.
        """
        deadline = time.monotonic() + THREADS_SECONDS
        while not (self.in_flight.is_empty and self._waiters.is_idle) and time.monotonic() < deadline:
            time.sleep(THREADS_POLL_SECONDS)

    def _require_generation(self) -> None:
        """Raise `GenerationOverError` once `abort` has begun. It marks the group first and fails its waits last: what is left out in between must not
        count as done."""
        if self.aborted.is_set():
            raise GenerationOverError(ABORTED)

    def _new_promise(self) -> Future[Any]:
        """Return a future that `abort` fails; it has failed already if the group is aborted."""
        promise: Future[Any] = Future()
        with self._lock:
            self._promises[id(promise)] = promise
        if self.aborted.is_set():  # before the promise was registered
            self._resolve(promise, GenerationOverError(ABORTED))
        return promise

    def _resolve(self, promise: Future[Any], outcome: Any) -> None:
        """Set the result of `promise` unless it is set. A failure after `abort` counts as caused by it: the outcome is then
        `GenerationOverError`.
        """
        with self._lock:
            unresolved = self._promises.pop(id(promise), None)
        if unresolved is not None:
            unresolved.set_result(GenerationOverError(ABORTED) if isinstance(outcome, Exception) and self.aborted.is_set() else outcome)

    def abort(self) -> None:
        """Fail every wait in the group and shut its sockets down. Any thread may call it, any number of times."""
        self.aborted.set()
        with self._lock:
            now = connected_sockets()
            for each in now - self._others if self._own is None else now & self._own:
                shut_down(each)
            promises = list(self._promises.values())
        for promise in promises:
            self._resolve(promise, GenerationOverError(ABORTED))
        abort_nccl()


def failure_of(finished: Future[Any]) -> RuntimeError | None:
    """Return the error of a finished future, or None."""
    try:
        finished.value()
    except RuntimeError as error:
        return error
    return None


def wait_for(works: Sequence[Any]) -> None:
    """Wait for all of `works`, in order."""
    for work in works:
        work.wait()


def first_error(works: deque[Any]) -> RuntimeError | None:
    """Wait for all works in order, dropping each reference once its work is done. Return the first error instead of raising it, or None."""
    try:
        while works:
            works.popleft().wait()
    except RuntimeError as error:
        return error
    return None


def unwrap(promise: Future[Any]) -> Any:
    """Return the result of `promise`, or raise it if it is an exception.

    Called from `then`, so that torch makes the exception the error of the future that the caller waits for.
    """
    outcome = promise.value()
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def abort_nccl() -> None:
    """Abort NCCL's communicators. Does nothing for a group over gloo alone."""
    if not dist.is_initialized() or not dist.is_nccl_available() or "nccl" not in str(dist.get_backend_config()):
        return
    torch_private.abort_nccl_groups()


def connected_sockets() -> frozenset[Socket]:
    """Return this process's TCP sockets except listening ones: gloo ends the process when its listening socket is shut down."""
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
    """Shut a socket down in both directions; its descriptor stays open, and its owner sees that the peer is gone."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(which.descriptor)) as copy:  # closed already, which is the aim
        copy.shutdown(socket.SHUT_RDWR)
