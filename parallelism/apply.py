"""Parallelisms applied to a plain model, in the one order that works. The model knows nothing of it."""

from __future__ import annotations

import torch
from torch import nn

from parallelism.data_parallel import Alone, Replicated, Sum, Wrapped
from parallelism.plan import Degrees


def parallelize(model: nn.Module, degrees: Degrees, device: torch.device, add_up: Sum) -> Wrapped:
    """Needs the process group of the world that `degrees` describe."""
    return Replicated(model, device, add_up) if degrees.replicate > 1 else Alone(model)
