"""What the planner must know of a model: its layers in order, as sizes. Pure; each model folder's `shape.py` counts them from a spec.

Bytes of activations are those of one sample, and follow from what the model's operations keep for backward in a given precision.
Weights are counted in elements, since their bytes depend on how they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

Precision = Literal["fp32", "bf16", "fp16"]
#: Bytes of an element in the forward pass under autocast.
COMPUTE_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2}
MASTER_BYTES = 4


@dataclass(frozen=True)
class Kernels:
    """What a device's kernels keep for backward where they differ. CUDA's follow torch 2.13's source; only the CPU's were measured."""

    fused_norm: bool  # keeps its input only; else the normalized value too
    attention_copies: int  # of the attention's result: its own, and a row-major one for the projection that follows
    mask_bytes: int | None  # of an element of a dropout mask; None: as wide as what it masks
    beside_host: bool  # the host's memory is another one, to which state can be offloaded


CPU = Kernels(fused_norm=False, attention_copies=2, mask_bytes=None, beside_host=False)
CUDA = Kernels(fused_norm=True, attention_copies=1, mask_bytes=1, beside_host=True)


@dataclass(frozen=True)
class Numbers:
    """How wide things are: precision and kernels together."""

    precision: Precision = "fp32"
    kernels: Kernels = CPU

    @property
    def compute(self) -> int:
        return COMPUTE_BYTES[self.precision]

    @property
    def casts(self) -> bool:
        """Whether autocast copies the weights of matrix products."""
        return self.precision != "fp32"

    def mask(self, element: int, dropout: float) -> int:
        """Bytes that dropout keeps of an element of `element` bytes."""
        return 0 if dropout == 0 else self.kernels.mask_bytes or element


@dataclass(frozen=True)
class Layer:
    """One stretch of a model, in the order of its forward pass."""

    name: str
    parameters: int = 0  # trainable elements that are its own
    borrowed: int = 0  # trainable elements that it uses and a later layer owns: a tied embedding
    matrices: int = 0  # elements that autocast copies: those of matrix products and convolutions
    saved: int = 0  # bytes a sample that its backward needs
    gathered: int = 0  # the part of `saved` that tensor parallelism leaves whole: inputs gathered for products cut by columns
    working: int = 0  # bytes a sample on top, at the fullest moment of its backward
    working_if_cut: int = 0  # ... and on top of that where tensor parallelism cuts it
    forward_working: int = 0  # ... and of its forward, on top of `saved`
    put_off: int = 0  # bytes a sample that wait where backward is split: inputs of its products, and gradients of their results
    reordered: int = 0  # bytes of copies of its weights that its backward makes for itself
    input: int = 0  # bytes a sample that come in from the layer before
    checkpoint: int = 0  # bytes a sample that stay of `saved` where the layer is computed again in backward
    products: int = 0  # ... and further ones where the results of its products and attention are kept (selective)
    flops: int = 0  # floating-point operations of its forward for a sample; a multiply-add is two
    whole_input: bool = False  # tensor parallelism leaves it whole: what comes in is not cut by the sequence
    is_block: bool = False  # one of the repeated blocks, which are checkpointed, sharded and moved between stages as a whole

    def with_copies(self) -> Layer:
        """On a rank that has a copy of what it borrows: the owner, at the model's end, is on another one."""
        return replace(self, parameters=self.parameters + self.borrowed, borrowed=0)

    def cut(self, tensor: int, context: int) -> Layer:
        """One rank's part where matrices and heads are cut into `tensor`, and sequences into `context`."""
        if tensor == context == 1:
            return self
        sequences = context if self.whole_input else tensor * context
        return replace(
            self,
            parameters=-(-self.parameters // tensor),
            borrowed=-(-self.borrowed // tensor),
            matrices=-(-self.matrices // tensor),
            saved=((self.saved - self.gathered) // tensor + self.gathered) // context,
            gathered=self.gathered // context,
            working=(self.working + (self.working_if_cut if tensor > 1 else 0)) // (tensor * context),
            forward_working=self.forward_working // (tensor * context),
            put_off=self.put_off // (tensor * context),
            reordered=self.reordered // tensor,
            input=self.input // sequences,
            checkpoint=self.checkpoint // sequences,
            products=self.products // (tensor * context),
            flops=self.flops // (tensor * context),
        )


@dataclass(frozen=True)
class Shape:
    layers: tuple[Layer, ...]
    heads: int = 1  # what tensor parallelism cuts attention into
    sequence: int = 1  # tokens of a sample, which context parallelism cuts

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def blocks(self) -> int:
        return sum(layer.is_block for layer in self.layers)

    @property
    def flops(self) -> int:
        """Of a sample's forward pass."""
        return sum(layer.flops for layer in self.layers)
