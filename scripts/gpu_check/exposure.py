"""Exposed communication by events: a computation that waits for a stream beside it, as it waits for NCCL's, and one that does not."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from paceline.distributed.exposure import exposure_on
from paceline.training.link import RankPlace
from scripts.gpu_check.machine import Machine
from scripts.gpu_check.outcome import RowFailedError, Seen
from scripts.gpu_check.ranks import enter, on_ranks

SIZE, QUICK_SIZE, PRODUCTS = 8192, 512, 20
#: The most that the events may differ from the host's clock, which has the start of kernels in it too.
TOLERANCE = 0.3


def check(machine: Machine) -> Seen:
    waited, taken, free = on_ranks(machine, 1, waits, QUICK_SIZE if machine.quick else SIZE)[0]
    if not machine.quick and abs(waited - taken) > TOLERANCE * taken:
        raise RowFailedError(f"a wait of {1000 * taken:.1f} ms by the host's clock is {1000 * waited:.1f} ms by events")
    if free > waited:
        raise RowFailedError(f"{1000 * free:.1f} ms are told of a computation that waits for nothing")
    return Seen(f"a wait of {1000 * taken:.1f} ms by the host's clock is {1000 * waited:.1f} ms by events", {"waited_seconds": waited})


def waits(world: RankPlace, size: int) -> tuple[float, float, float]:
    """Return the seconds of a wait as they are measured, the same by the host's clock, and what is measured where nothing is waited for."""
    device = enter(world)
    exposure, matrix = exposure_on(device), torch.ones(size, size, device=device)
    multiply(matrix)  # what the first kernels cost does not count
    synchronize(device)
    started, mark = time.perf_counter(), exposure.mark()
    if device.type == "cuda":
        beside, computing = torch.cuda.Stream(device), torch.cuda.current_stream(device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(beside):
            multiply(matrix)
        computing.wait_stream(beside)
    else:
        multiply(matrix)
    waited = exposure.since(mark)
    synchronize(device)
    taken, waited = time.perf_counter() - started, waited + exposure.collect()
    free = exposure.since(exposure.mark())
    synchronize(device)
    return waited, taken, free + exposure.collect()


def multiply(matrix: Tensor) -> None:
    for _ in range(PRODUCTS):
        torch.mm(matrix, matrix)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
