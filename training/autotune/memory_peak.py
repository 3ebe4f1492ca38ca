"""What a rank's tensors take at the fullest moment of something that it does: what torch's allocator gave out and took back.

On a GPU the allocator counts itself. On a CPU it counts what is taken while it is asked to, so what was there before is added up from the
tensors themselves. Python, torch's code and what kernels keep for themselves come on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from paceline.parallelism.mesh import local_tensor
from paceline.training.autotune.allocated import measure_memory


def peak_of(
    model: nn.Module, optimizer: torch.optim.Optimizer, device: torch.device, run: Callable[[], object], exchange_buffer_bytes: int
) -> int:
    """Return the peak bytes on this rank's device while `run`, which leaves gradients behind, runs. `exchange_buffer_bytes` are allocated
    already."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return torch.cuda.max_memory_allocated(device)
    before = bytes_of(tensors_between_steps(model, optimizer))
    held = measure_memory(run)
    gradients = bytes_of(p.grad for p in model.parameters() if p.grad is not None)
    return (
        before + exchange_buffer_bytes + max(0, gradients - held.retained) + held.peak
    )  # some gradients are views of what was there before


def tensors_between_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterable[Tensor]:
    """Yield the tensors that exist between two steps: parameters, buffers and optimizer state."""
    yield from model.parameters()
    yield from model.buffers()
    for values in optimizer.state.values():
        yield from (value for value in values.values() if isinstance(value, Tensor))


def bytes_of(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of these tensors' storages on the CPU. A storage that several tensors share counts once."""
    storages = [local_tensor(tensor).untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages if storage.device.type == "cpu"}.values())
