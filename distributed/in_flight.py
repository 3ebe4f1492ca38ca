"""Track the tensors that gloo's own threads still hold.

gloo releases a tensor some time after every rank has learned that its collective is done, and needs Python's interpreter lock for that.
An interpreter that exits meanwhile kills the process (SIGABRT, "terminate called without an active exception"): in one of ten ends of a
sharded script, whose model keeps the group, and so its threads, to the end.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque

from torch import Tensor


class InFlightTensors:
    """The tensors that were given to gloo and that its threads have not released."""

    def __init__(self) -> None:
        self._alive: set[weakref.ref[Tensor]] = set()
        self._released: deque[weakref.ref[Tensor]] = deque()

    def alias(self, tensor: Tensor) -> Tensor:
        """Return a tensor over the same memory, to be given to gloo; the caller keeps no reference to it. CUDA tensors are returned as
        they are.
        """
        if tensor.device.type != "cpu":
            return tensor
        shadow = tensor.detach()
        # No Python function runs at the release: gloo's thread keeps the interpreter lock until it needs it no more.
        self._alive.add(weakref.ref(shadow, self._released.append))
        self._forget_released()
        return shadow

    @property
    def is_empty(self) -> bool:
        """Whether gloo has released every tensor."""
        self._forget_released()
        return not self._alive

    def _forget_released(self) -> None:
        """Forget the tensors that were released. Several threads may call it at once."""
        with contextlib.suppress(IndexError):
            while True:
                self._alive.discard(self._released.popleft())
