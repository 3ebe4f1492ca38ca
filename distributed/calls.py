"""The group calls of one generation, numbered as this rank makes them: what it waits in, should it wait for ever.

Every rank makes the same calls in the same order; two that are at different calls under one number have lost each other.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from distributed.overlap import Overlap

#: How far back ranks can be compared: more than one may be ahead of another.
REMEMBERED_CALLS = 16


class Call(NamedTuple):
    number: int  # 0: between two ranks only
    kind: str
    shape: tuple[int, ...] | None  # None: may differ between ranks
    dtype: torch.dtype | None

    def __str__(self) -> str:
        if self.shape is None:
            return self.kind
        return f"{self.kind} of {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


def aside(kind: str) -> Call:
    return Call(0, kind, None, None)


class Calls:
    """Written by the training thread, read by its watchdog: single attributes, so that no lock is needed."""

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
        self._awaited = call
        self.overlap.waits(call is not None)

    def begin(self, kind: str, tensor: Tensor | None = None) -> Call:
        self._number += 1
        call = Call(self._number, kind, None if tensor is None else tensor.shape, None if tensor is None else tensor.dtype)
        self.recent.append(call)
        return call

    def done(self, call: Call) -> None:
        if self.awaited is call:
            self.awaited = None

    @contextlib.contextmanager
    def awaiting(self, call: Call) -> Iterator[None]:
        """Left standing by an exception: the generation is over then, and these calls with it."""
        self.awaited = call
        yield
        self.awaited = None
