"""The collective calls of one generation, numbered as this rank makes them, so that a hang report can name the call that a rank waits in.

Every rank makes the same calls in the same order. Two ranks with different calls under one number have diverged.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from paceline.distributed.overlap import Overlap

#: How far back ranks can be compared: more than one may be ahead of another.
REMEMBERED_CALLS = 16


class Call(NamedTuple):
    """One call of a group: its number, its kind and what it sends."""

    number: int  # 0: a point-to-point operation
    kind: str
    shape: tuple[int, ...] | None  # None: may differ between ranks
    dtype: torch.dtype | None

    def __str__(self) -> str:
        if self.shape is None:
            return self.kind
        return f"{self.kind} of {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def point_to_point_call(kind: str) -> Call:
    """Return an unnumbered call, for an operation between some ranks only."""
    return Call(0, kind, None, None)


class Calls:
    """The calls of this rank in one generation. The training thread writes, its watchdog reads single attributes, so that no lock is
    needed.
    """

    def __init__(self) -> None:
        self.recent: deque[Call] = deque(maxlen=REMEMBERED_CALLS)
        self.overlap = Overlap()
        self._awaited: Call | None = None
        self._number = 0

    @property
    def awaited(self) -> Call | None:
        """The training thread has nothing else to do until it is done."""
        return self._awaited

    @awaited.setter
    def awaited(self, call: Call | None) -> None:
        """The call that the training thread is waiting for, or None."""
        self._awaited = call
        self.overlap.set_waiting(call is not None)

    def begin(self, kind: str, tensor: Tensor | None = None) -> Call:
        """Number and record the next collective call and return it."""
        self._number += 1
        call = Call(self._number, kind, None if tensor is None else tensor.shape, None if tensor is None else tensor.dtype)
        self.recent.append(call)
        return call

    def done(self, call: Call) -> None:
        """Record that `call` is done, if it is the one that is waited for."""
        if self.awaited is call:
            self.awaited = None

    @contextlib.contextmanager
    def awaiting(self, call: Call) -> Iterator[None]:
        """Mark `call` as waited for inside the block. After an exception the mark stays: the generation is over then."""
        self.awaited = call
        yield
        self.awaited = None
