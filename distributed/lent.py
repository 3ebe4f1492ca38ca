"""What gloo's own threads still hold of a rank's tensors, and whether they have let go.

gloo lets go of a tensor some time after everybody has heard that its collective is done, and needs Python's lock for that. An interpreter that ends
meanwhile takes the whole process with it (SIGABRT, "terminate called without an active exception"): in one of ten ends of a sharded script, whose
model keeps the group, and so those threads, to the last.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque

from torch import Tensor


class Lent:
    def __init__(self) -> None:
        self._out: set[weakref.ref[Tensor]] = set()
        self._back: deque[weakref.ref[Tensor]] = deque()

    def lend(self, tensor: Tensor) -> Tensor:
        """The same numbers as a tensor of its own, for gloo alone: the caller keeps no reference to it. On a GPU nothing of gloo's."""
        if tensor.device.type != "cpu":
            return tensor
        alias = tensor.detach()
        # Nothing of Python's own runs on its way back: whoever brings it keeps the lock until it needs it no more.
        self._out.add(weakref.ref(alias, self._back.append))
        self._settle()
        return alias

    @property
    def is_back(self) -> bool:
        """All of it."""
        self._settle()
        return not self._out

    def _settle(self) -> None:
        """Another thread may do it too."""
        with contextlib.suppress(IndexError):
            while True:
                self._out.discard(self._back.popleft())
