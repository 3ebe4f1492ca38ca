"""Loops that take turns in the same processes, so that whatever else the machine does hits all of them alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import torch.distributed as dist

#: One optimizer step of the global batch, this rank's part of it.
Loop = Callable[[], object]
#: Seconds of a step, by loop, in one round.
Round = dict[str, float]

STEPS = 2  # of each loop in a round


def in_turns(
    loops: Mapping[str, Loop], rounds: int, *, steps: int = STEPS, synchronize: Callable[[], object] = dist.barrier
) -> list[Round]:
    """The order rotates and turns round, so that none runs after the same other more often than after the rest. Every rank calls this with loops
    of the same names; `together` waits until all that was begun anywhere is done."""
    for loop in loops.values():
        seconds(loop, steps, synchronize)  # warm up
    return [{name: seconds(loops[name], steps, synchronize) for name in order(list(loops), number)} for number in range(rounds)]


def order(names: Sequence[str], number: int) -> Sequence[str]:
    """Return the order of the loops in round `number`. The rounds go through every rotation of `names`, forwards and backwards."""
    first = number // 2 % len(names)
    rotated = [*names[first:], *names[:first]]
    return rotated if number % 2 == 0 else rotated[::-1]


def seconds(loop: Loop, steps: int, synchronize: Callable[[], object]) -> float:
    """Return the seconds of one step, in the mean over `steps`, from when all ranks are ready until all are done."""
    synchronize()
    started = time.perf_counter()
    for _ in range(steps):
        loop()
    synchronize()
    return (time.perf_counter() - started) / steps
