"""The sizes of a model that the planner needs: its layers in order. Pure; each model folder's `shape.py` counts them from a spec.

Activations are counted in bytes for one sample, and follow from what the model's operations keep for backward in a given precision.
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
    """The properties of a device's kernels on which the memory for backward depends. CUDA's follow torch 2.13's source; only the CPU's
    were measured.
    """

    fused_norm: bool  # keeps its input only; else the normalized value too
    attention_copies: int  # copies of the attention's result: itself, and a row-major one for the projection that follows
    mask_bytes: int | None  # bytes of an element of a dropout mask; None: as wide as the masked element
    beside_host: bool  # the device has memory of its own, so that state can be offloaded to the host's


CPU = Kernels(fused_norm=False, attention_copies=2, mask_bytes=None, beside_host=False)
CUDA = Kernels(fused_norm=True, attention_copies=1, mask_bytes=1, beside_host=True)


@dataclass(frozen=True)
class NumberFormats:
    """The widths of numbers: precision and kernels together."""

    precision: Precision = "fp32"
    kernels: Kernels = CPU

    @property
    def compute(self) -> int:
        """Bytes of an element in the forward pass."""
        return COMPUTE_BYTES[self.precision]

    @property
    def casts(self) -> bool:
        """Whether autocast copies the weights of matrix products."""
        return self.precision != "fp32"

    def mask(self, element: int, dropout: float) -> int:
        """Return the bytes that dropout keeps of an element of `element` bytes."""
        return 0 if dropout == 0 else self.kernels.mask_bytes or element


@dataclass(frozen=True)
class Layer:
    """One stretch of a model, in the order of its forward pass."""

    name: str
    parameters: int = 0  # trainable elements that the layer owns
    borrowed: int = 0  # trainable elements that the layer uses and a later layer owns: a tied embedding
    matrices: int = 0  # elements that autocast copies: weights of matrix products and convolutions
    saved: int = 0  # bytes a sample that the layer's backward needs
    gathered: int = 0  # the part of `saved` that tensor parallelism leaves whole: inputs gathered for products cut by columns
    working: int = 0  # bytes a sample on top, at the fullest moment of its backward
    working_if_sharded: int = 0  # ... and on top of that where tensor parallelism shards the layer
    forward_working: int = 0  # ... and of its forward, on top of `saved`
    deferred: int = 0  # bytes a sample that are kept where backward is split: inputs of products, and gradients of their results
    reordered: int = 0  # bytes of copies of the weights that backward makes
    input: int = 0  # bytes a sample of the layer's input
    checkpoint: int = 0  # bytes a sample of `saved` that are kept where the layer is recomputed in backward
    products: int = 0  # ... and further ones where the results of its products and attention are kept (selective)
    keys_and_values: int = 0  # bytes a sample of the attention's keys and values, which context parallelism sends round
    flops: int = 0  # floating-point operations of the forward pass for a sample; a multiply-add is two
    whole_input: bool = False  # tensor parallelism leaves the layer whole: its input is not sharded by sequence
    is_block: bool = False  # one of the repeated blocks, which are checkpointed, sharded and moved between stages as a whole

    def with_copies(self) -> Layer:
        """Return the layer on a rank that has a copy of the matrix that it borrows, because the owner, at the model's end, is on another
        rank.
        """
        return replace(self, parameters=self.parameters + self.borrowed, borrowed=0)

    def shard(self, tensor: int, context: int) -> Layer:
        """Return one rank's shard of the layer, with matrices and heads cut into `tensor` and sequences into `context` shards."""
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
            working=(self.working + (self.working_if_sharded if tensor > 1 else 0)) // (tensor * context),
            forward_working=self.forward_working // (tensor * context),
            deferred=self.deferred // (tensor * context),
            reordered=self.reordered // tensor,
            input=self.input // sequences,
            checkpoint=self.checkpoint // sequences,
            products=self.products // (tensor * context),
            keys_and_values=self.keys_and_values // (tensor * context),
            flops=self.flops // (tensor * context),
        )


@dataclass(frozen=True)
class ModelShape:
    """A model as layers, with what limits its parallelism."""

    layers: tuple[Layer, ...]
    heads: int = 1  # attention heads, which tensor parallelism shards
    sequence: int = 1  # tokens of a sample, which context parallelism shards

    @property
    def parameters(self) -> int:
        return sum(layer.parameters for layer in self.layers)

    @property
    def blocks(self) -> int:
        return sum(layer.is_block for layer in self.layers)

    @property
    def flops(self) -> int:
        """Floating-point operations of a sample's forward pass."""
        return sum(layer.flops for layer in self.layers)
