"""The precision of the forward pass. Parameters, gradients and optimizer state are stored and updated in fp32."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import Tensor, nn

from paceline.distributed.torch_private import multiply_each
from paceline.parallelism.mesh import local_tensor

Precision = Literal["fp32", "bf16", "fp16"]

#: The data type of matrix products, where it is not the one that parameters are stored in.
HALF = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a new autocast context for one forward pass."""
    return torch.autocast(device.type, HALF[precision]) if precision in HALF else contextlib.nullcontext()


def parameter_type(precision: Precision, model: nn.Module) -> torch.dtype | None:
    """Return the data type in which sharded parameters are gathered: bf16 or fp16 halves the bytes. None: as they are stored.

    Norms that keep running statistics in fp32 need their weights in fp32 too, so models with such norms get None.
    """
    has_statistics = any(getattr(module, "running_mean", None) is not None for module in model.modules())
    return None if has_statistics else HALF.get(precision)


def scaled(loss: Tensor, scale: float) -> Tensor:
    """Return `loss` times `scale`, in fp32 whatever it was computed in: fp16 cannot represent the product."""
    return loss if scale == 1.0 else loss.float() * scale


@torch.no_grad()
def unscale_gradients(parameters: Iterable[nn.Parameter], scale: float) -> None:
    """Divide the gradients by `scale`, a power of two that the loss was multiplied by, after they have been summed over ranks."""
    gradients = [local_tensor(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if scale != 1.0 and gradients:
        multiply_each(gradients, 1.0 / scale)
