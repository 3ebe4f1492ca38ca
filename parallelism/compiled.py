"""Blocks compiled by torch.compile: fewer, fused kernels for the same arithmetic, equal to rounding.

Each block is compiled by itself, as torchtitan does it (`torchtitan/models/llama3/parallelize.py`): blocks that are built alike share a
compilation, and what happens around a block (gathering of parameters, recomputation of activations, hooks) stays outside. Only training
is compiled: evaluation has batches of other sizes, and sampling has a new size for each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.distributed import torch_private
from paceline.parallelism.activation_checkpoint import RecomputedBlock
from paceline.parallelism.blocks import blocks_of

#: Kinds of inputs of one block: a full micro-batch and the smaller last one, each with and without gradients of its inputs; and as many again.
MOST_KINDS = 8


class CompilerError(RuntimeError):
    """Nothing can be compiled on this node, or not for the inputs that the model gets."""


def compile_blocks(model: nn.Module, *, reproducible: bool) -> None:
    """Compile the blocks of `model`, in place, or the whole model if it has none. Harmless the second time.

    Call it before activations are checkpointed. Names of parameters do not change.
    """
    blocks = blocks_of(model) or [model]
    configure(blocks)
    for block in blocks:
        if not isinstance(block.forward, CompiledBlock | RecomputedBlock):  # else an earlier generation did it
            block.forward = CompiledBlock(block, reproducible=reproducible)


def configure(blocks: Sequence[nn.Module]) -> None:
    """Configure this process's compiler for `blocks`.

    Blocks of one class share a limit of recompilations, and exceeding it is made an error: torch would continue uncompiled with hardly a
    message. The optimizer for DDP, which splits graphs at bucket boundaries, is turned off: our graphs are blocks already.
    """
    torch.compiler.config.recompile_limit = MOST_KINDS * len(blocks)
    torch.compiler.config.accumulated_recompile_limit = MOST_KINDS * len(blocks)
    torch.compiler.config.fail_on_recompile_limit_hit = True
    torch_private.keep_blocks_whole()


class CompiledBlock:
    """A block's compiled forward pass.

    A reproducible job has kernels for each size of micro-batch: torch's kernels for dynamic sizes round differently, and which kernels a
    rank used would depend on the sizes that it has seen.
    """

    def __init__(self, block: nn.Module, *, reproducible: bool) -> None:
        self._name, self._plain = type(block).__name__, block.forward
        self._compiled = torch.compile(block.forward, dynamic=False if reproducible else None)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return self._plain(*inputs, **named)
        try:
            return self._compiled(*inputs, **named)
        except torch_private.FailOnRecompileLimitHit as error:
            raise CompilerError(
                f"compile=true: {self._name} is given more kinds of inputs than torch compiles for; use batches of one shape, or compile: false"
            ) from error


def require_compiler(device: torch.device) -> None:
    """Compile and run something small. Raises `CompilerError` with what is missing on this node.

    torch's compiler depends on other programs and libraries, and reports a missing one by many types of exceptions.
    """
    try:
        torch.compile(twice)(torch.ones(8, device=device))
    except Exception as error:
        needs = "a C++ compiler (g++, or what CXX names) and Python's headers" if device.type == "cpu" else "Triton and a C compiler"
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise CompilerError(f"compile=true needs {needs} on every node: {reason}; install them there, or use compile: false") from error


def twice(tensor: Tensor) -> Tensor:
    return tensor + tensor
