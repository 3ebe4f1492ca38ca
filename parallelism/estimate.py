"""What a rank needs in memory, from counts alone. Pure: the plan preview shows these numbers before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

#: Autocast keeps parameters, gradients and optimizer state in fp32, whatever the precision of the forward pass.
MASTER_BYTES = 4
#: fp32 tensors of a parameter's size that the optimizer holds: two moments, or one momentum buffer.
OPTIMIZER_TENSORS = {"adamw": 2, "sgd": 1}


@dataclass(frozen=True)
class Memory:
    """Bytes on one rank that replicates the whole model."""

    parameters: int
    gradients: int
    optimizer: int
    note: str

    @property
    def total(self) -> int:
        return self.parameters + self.gradients + self.optimizer


def memory(
    parameters: int, optimizer_kind: Literal["adamw", "sgd"], precision: Literal["fp32", "bf16", "fp16"], gradient_buffers: float = 1.0
) -> Memory:
    """Parameters, their gradients' buffers and the optimizer's state; activations depend on the micro-batch and come on top."""
    state = parameters * MASTER_BYTES
    note = "activations and communication buffers come on top"
    if precision != "fp32":
        note = f"{precision} halves activations only: parameters, gradients and optimizer state stay fp32; {note}"
    if gradient_buffers > 1:
        note = f"gradients: {gradient_buffers:.1f} copies while the fixed tree adds them up, one with reproducible: false; {note}"
    return Memory(
        parameters=state, gradients=round(gradient_buffers * state), optimizer=OPTIMIZER_TENSORS[optimizer_kind] * state, note=note
    )
