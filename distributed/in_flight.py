"""Track the tensors that gloo's own threads still hold.

gloo releases a tensor some time after every rank has learned that its collective is done, and needs Python's interpreter lock for that: once to
begin, and again to end, since torch gives the lock up while it frees the tensor's memory. An interpreter that exits before the second time kills
the process (SIGABRT, "terminate called without an active exception"): in one of ten ends of a sharded script, whose model keeps the group, and so
its threads, to the end.
"""

from __future__ import annotations

import sys

from torch import Tensor

from paceline.distributed import torch_private


class InFlightTensors:
    """The tensors that were given to gloo and that its threads have not released.

    Each is of a class of this object's own. Python counts the references to a class, and a tensor gives up its own as the very last thing that
    its release needs the interpreter lock for; weak references to it are cleared before that.
    """

    def __init__(self) -> None:
        attributes = {"__torch_function__": torch_private.no_torch_function}  # nothing that is computed from one becomes one
        self._class: type[Tensor] = type("InFlightTensor", (Tensor,), attributes)
        self._references = sys.getrefcount(self._class)

    def alias(self, tensor: Tensor) -> Tensor:
        """Return a tensor over the same memory, to be given to gloo; the caller keeps no reference to it. CUDA tensors are returned as
        they are.
        """
        return tensor.detach().as_subclass(self._class) if tensor.device.type == "cpu" else tensor

    @property
    def is_empty(self) -> bool:
        """Whether gloo has released every tensor."""
        return sys.getrefcount(self._class) == self._references
