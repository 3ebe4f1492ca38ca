"""Blocks compiled by torch.compile: fewer and fused kernels for the same arithmetic, equal to rounding.

Block by block, as torchtitan does it (`torchtitan/models/llama3/parallelize.py`): blocks that are built alike share a compilation, and what goes on
around a block (parameters gathered, activations computed again, hooks) stays outside. Only training is compiled: evaluation has batches of
other sizes, and sampling a new one for each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parallelism.activation_checkpoint import Recomputed
from parallelism.blocks import blocks_of

#: Of one block: a full micro-batch and the smaller last one, each with and without gradients of its inputs, and as many again.
MOST_KINDS = 8


class CompilerError(RuntimeError):
    """Nothing can be compiled on this node, or not for what the model is given."""


def compile_blocks(model: nn.Module, *, reproducible: bool) -> None:
    """In place, any number of times, before activations are checkpointed; names of parameters stay what they are. A model without blocks
    is compiled as a whole."""
    blocks = blocks_of(model) or [model]
    configure(blocks)
    for block in blocks:
        if not isinstance(block.forward, Compiled | Recomputed):  # else an earlier generation did it
            block.forward = Compiled(block, reproducible=reproducible)


def configure(blocks: Sequence[nn.Module]) -> None:
    """This process's compiler. Blocks of one class count together; where torch gives up it would go on uncompiled, and hardly say so. Without
    the optimizer for DDP, which cuts graphs at its buckets: our graphs are blocks already."""
    torch._dynamo.config.recompile_limit = MOST_KINDS * len(blocks)
    torch._dynamo.config.accumulated_recompile_limit = MOST_KINDS * len(blocks)
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    torch._dynamo.config.optimize_ddp = False


class Compiled:
    """A block's forward pass.

    A reproducible job has kernels for each size of micro-batch: torch's kernels for any size round otherwise, and which ones a rank
    used would depend on the sizes that it has seen.
    """

    def __init__(self, block: nn.Module, *, reproducible: bool) -> None:
        self._name, self._plain = type(block).__name__, block.forward
        self._compiled = torch.compile(block.forward, dynamic=False if reproducible else None)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._plain(*inputs, **named)
        try:
            return self._compiled(*inputs, **named)
        except torch._dynamo.exc.FailOnRecompileLimitHit as error:
            raise CompilerError(
                f"compile=true: {self._name} is given more kinds of inputs than torch compiles for; use batches of one shape, or compile: false"
            ) from error


def require_compiler(device: torch.device) -> None:
    """Compile and run something small: torch's compiler needs others, and what they need, and it says in many types what is missing."""
    try:
        torch.compile(twice)(torch.ones(8, device=device))
    except Exception as error:
        needs = "a C++ compiler (g++, or what CXX names) and Python's headers" if device.type == "cpu" else "Triton and a C compiler"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CompilerError(f"compile=true needs {needs} on every node: {reason}; install them there, or use compile: false") from error


def twice(tensor: Tensor) -> Tensor:
    return tensor + tensor
