"""Writers of checkpoints: at once, while training waits, or in the background of the steps that follow."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from paceline.monitoring.host import available_memory_bytes

T = TypeVar("T")

#: By any key: what is to be written, or copies of it that training does not touch.
Values = Mapping[Any, Any]

UNCHANGING = frozenset((bool, int, float, str, bytes, type(None)))
#: The share of the available memory that copies may take.
ROOM = 0.9
#: How much nicer than training the thread is that writes: training comes first wherever the two want one core.
NICER = 10
#: As nice as Linux goes.
NICEST = 19


class CheckpointWriter(Protocol):
    """Writes a rank's part of a checkpoint."""

    waits: bool  # training does, until a save is done

    def snapshot(self, values: Values) -> Values:
        """Return the values to write, safe from changes by training until they are written."""
        ...

    def submit(self, work: Callable[[], T]) -> Future[T]:
        """Write the latest snapshot; the future is done when it is written."""
        ...

    def close(self) -> None:
        """Stop without waiting. An unfinished write is abandoned."""
        ...


class BlockingWriter:
    """Writes while training waits, so that nothing is copied."""

    waits = True

    def snapshot(self, values: Values) -> Values:
        return values

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return finished(work)

    def close(self) -> None:
        """Nothing is left to do on closing."""


class BackgroundWriter:
    """Writes in a thread of its own, from copies in host memory that the next save reuses; page-locked if they come from a GPU.

    Where memory for copies is short, the writer logs that and writes at once. `ranks_here` ranks share this machine's memory.
    """

    waits = False

    def __init__(self, ranks_here: int, log: Callable[[str], None]) -> None:
        self._ranks_here, self._log = ranks_here, log
        self._thread = ThreadPoolExecutor(1, "save", initializer=lower_priority)
        self._copies: dict[Any, Tensor] = {}
        self._has_copied = False

    @torch.no_grad()
    def snapshot(self, values: Values) -> Values:
        tensors = {key: value for key, value in values.items() if type(value) not in UNCHANGING and isinstance(value, Tensor)}
        once = {id(tensor): (key, tensor) for key, tensor in tensors.items()}  # one that is to be written and to be hashed has two keys
        self._has_copied = self._has_room(once.values())
        if not self._has_copied:
            return values
        copies = {identity: self._copy(key, tensor) for identity, (key, tensor) in once.items()}
        snapshots = {key: value if type(value) in UNCHANGING else unchanging(value) for key, value in values.items() if key not in tensors}
        snapshots |= {key: copies[id(tensor)] for key, tensor in tensors.items()}
        if any(tensor.is_cuda for tensor in tensors.values()):
            torch.cuda.current_stream().synchronize()
        return snapshots

    def submit(self, work: Callable[[], T]) -> Future[T]:
        return self._thread.submit(work) if self._has_copied else finished(work)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _has_room(self, tensors: Collection[tuple[Any, Tensor]]) -> bool:
        new = sum(tensor.nbytes for key, tensor in tensors if not self._fits(key, tensor))
        if new == 0:
            return True
        needed, available = new * self._ranks_here, available_memory_bytes()
        if needed <= ROOM * available:
            return True
        self._log(
            f"WARNING copies for an asynchronous save would take {needed / 1e6:,.0f} MB of this machine's memory, of which "
            f"{available / 1e6:,.0f} MB are available: training waits for this save. Set checkpoint.asynchronous to false, or use fewer ranks here"
        )
        return False

    def _fits(self, key: Any, value: Tensor) -> bool:
        there = self._copies.get(key)
        return there is not None and (there.shape, there.dtype) == (value.shape, value.dtype)

    def _copy(self, key: Any, value: Tensor) -> Tensor:
        if not self._fits(key, value):
            self._copies[key] = torch.empty(value.shape, dtype=value.dtype, pin_memory=value.is_cuda)
        return self._copies[key].copy_(value, non_blocking=True)


def unchanging(value: Any) -> Any:
    """Return the value itself if it is immutable, else a copy."""
    is_constant = type(value) in UNCHANGING or (type(value) is tuple and all(type(each) in UNCHANGING for each in value))
    return value if is_constant else copy.deepcopy(value)


def lower_priority() -> None:
    """Lower the priority of this thread: Linux gives each thread its own. It becomes NICER than it was, since the rank may be nice
    already."""
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, min(NICEST, os.getpriority(os.PRIO_PROCESS, thread) + NICER))


def finished(work: Callable[[], T]) -> Future[T]:
    """Run `work` in this thread; return a future with its result or error."""
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # noqa: BLE001 - raised where the result is asked for
        future.set_exception(error)
    return future


def done(value: T) -> Future[T]:
    return finished(lambda: value)
