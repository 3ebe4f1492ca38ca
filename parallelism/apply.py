"""Parallelisms applied to a plain model, in the one order that works. The model knows nothing of it."""

from __future__ import annotations

import torch
from torch import nn

from distributed.process_group import Group
from parallelism.data_parallel import Alone, Replicated, Wrapped
from parallelism.plan import Degrees
from parallelism.reproducible import Reproducible


def parallelize(model: nn.Module, degrees: Degrees, device: torch.device, group: Group, *, reproducible: bool) -> Wrapped:
    """Needs the process group of the world that `degrees` describe."""
    if reproducible:
        return Reproducible(model, group)
    return Replicated(model, device, group) if degrees.replicate > 1 else Alone(model)
