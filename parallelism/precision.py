"""Precision of the forward pass. Parameters, gradients and optimizer state stay fp32 where they are kept and updated."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import nn


def autocast(precision: Literal["fp32", "bf16", "fp16"], device: torch.device) -> AbstractContextManager[object]:
    """A fresh context for one forward pass. bf16 has the exponent range of fp32, so no loss scaling."""
    if precision == "fp32":
        return contextlib.nullcontext()
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    raise ValueError(f"precision {precision} is not available yet; use bf16 or fp32")


def parameter_type(precision: Literal["fp32", "bf16", "fp16"], model: nn.Module) -> torch.dtype | None:
    """What sharded parameters are gathered as, half the bytes where they are computed with in bf16; None: as they are. Norms that keep
    running statistics in fp32 need their weights in it too."""
    has_statistics = any(getattr(module, "running_mean", None) is not None for module in model.modules())
    return None if precision == "fp32" or has_statistics else torch.bfloat16
