"""Parallelisms applied to a plain model, in the one order that works. The model knows nothing of it."""

from __future__ import annotations

import torch
from torch import nn

from distributed.process_group import Group
from parallelism.activation_checkpoint import checkpoint_activations
from parallelism.blocks import blocks_of
from parallelism.data_parallel import Alone, Replicated, Wrapped
from parallelism.fully_sharded import FullySharded
from parallelism.plan import Choices, Degrees
from parallelism.reproducible import Reproducible


def parallelize(
    model: nn.Module, degrees: Degrees, device: torch.device, group: Group, *, reproducible: bool, choices: Choices = Choices()
) -> Wrapped:
    """Needs the group of the world that `degrees` describe, joined with the lines of its mesh. Before the optimizer is made, where the
    model is sharded: its parameters are others afterwards."""
    blocks = blocks_of(model)
    checkpoint_activations(blocks, choices.activation_checkpointing)
    if reproducible:
        return Reproducible(model, group)
    if degrees.shard > 1:
        return FullySharded(model, blocks, degrees, device, group, choices)
    model.to(device)  # one that is to be sharded is built on the host, and this world may be too small for that
    return Replicated(model, device, group) if degrees.replicate > 1 else Alone(model)
