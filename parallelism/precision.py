"""Precision of the forward pass. Parameters, gradients and optimizer state stay fp32 where they are kept and updated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor, nn

from parallelism.mesh import local_part

Precision = Literal["fp32", "bf16", "fp16"]

#: What matrices are multiplied in, where that is not what they are kept in.
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """A fresh context for one forward pass."""
    return torch.autocast(device.type, HALF[precision]) if precision in HALF else contextlib.nullcontext()


def parameter_type(precision: Precision, model: nn.Module) -> torch.dtype | None:
    """What sharded parameters are gathered as, half the bytes where they are computed with in bf16 or fp16; None: as they are. Norms that keep
    running statistics in fp32 need their weights in it too."""
    has_statistics = any(getattr(module, "running_mean", None) is not None for module in model.modules())
    return None if has_statistics else HALF.get(precision)


def scaled(loss: Tensor, scale: float) -> Tensor:
    """In fp32, whatever it was computed in: fp16 has no room for it."""
    return loss if scale == 1.0 else loss.float() * scale


@torch.no_grad()
def unscale_gradients(parameters: Iterable[nn.Parameter], scale: float) -> None:
    """Those of a loss that was multiplied by `scale`, a power of two, once they are added up."""
    gradients = [local_part(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if scale != 1.0 and gradients:
        torch._foreach_mul_(gradients, 1.0 / scale)
