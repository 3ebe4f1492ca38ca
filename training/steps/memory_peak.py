"""What a rank's tensors take at the fullest moment of something that it does: what torch's allocator gave out and took back.

On a GPU the allocator counts itself. On a CPU it counts what is taken while it is asked to, so what was there before is added up from the
tensors themselves. Python, torch's code and what kernels keep for themselves come on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from parallelism.mesh import local_part
from training.state import TrainState
from training.steps.allocated import held_by


def peak_of(state: TrainState, run: Callable[[], object], kept_beside: int) -> int:
    """Bytes on this rank's device while it does something that leaves gradients behind; `kept_beside` are there already."""
    if state.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(state.device)
        run()
        return torch.cuda.max_memory_allocated(state.device)
    before = bytes_of(standing(state))
    held = held_by(run)
    gradients = bytes_of(p.grad for p in state.task.model.parameters() if p.grad is not None)
    return before + kept_beside + max(0, gradients - held.kept) + held.peak  # some gradients are views of what was there before


def standing(state: TrainState) -> Iterable[Tensor]:
    """What is there between two steps."""
    yield from state.task.model.parameters()
    yield from state.task.model.buffers()
    for values in state.optimizer.state.values():
        yield from (value for value in values.values() if isinstance(value, Tensor))


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Of what is on the CPU here, whatever shares it counted once."""
    storages = [local_part(tensor).untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages if storage.device.type == "cpu"}.values())
