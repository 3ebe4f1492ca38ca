"""Precision of the forward pass. Parameters, gradients and optimizer state stay fp32."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from typing import Literal

import torch


def autocast(precision: Literal["fp32", "bf16", "fp16"], device: torch.device) -> AbstractContextManager[object]:
    """A fresh context for one forward pass. bf16 has the exponent range of fp32, so no loss scaling."""
    if precision == "fp32":
        return contextlib.nullcontext()
    if precision == "bf16":
        return torch.autocast(device.type, torch.bfloat16)
    raise ValueError(f"precision {precision} is not available yet; use bf16 or fp32")
