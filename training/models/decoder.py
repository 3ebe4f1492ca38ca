"""What a decoder with gated feed-forwards keeps for backward, counted from its operations: of our GPT, and of transformers' llamas. Pure.

Of a GPT of our own a block keeps 16 d + 7 c d + 4 c w + 8 + 4 h bytes a token (CPU, no dropout; c: bytes of an element in the forward pass, w:
width of the feed-forward), and 3 c d more under autocast, where each product makes a copy of its input for itself. Korthikanti et al. 2022,
equation 1, count 34 d + 5 h s / d for two-byte elements, an ungated feed-forward with w = 4 d and an attention that keeps its scores. None is
kept here: attention computes them again (Dao et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.parallelism.model_shape import MASTER_BYTES, Layer, ModelShape, NumberFormats

TOKEN_ID_BYTES = 8


@dataclass(frozen=True)
class Decoder:
    """Sizes of a decoder-only transformer."""

    context: int
    vocabulary: int
    layers: int
    dim: int
    heads: int
    queries: int  # width of all heads together
    keys: int  # ... of those that queries share; values are as wide
    width: int  # of the feed-forward
    vectors: int  # parameters of a block that are in no matrix: norms' weights, biases
    tied: bool
    dropout: float = 0.0
    one_norm_kernel: bool = True  # where the device has one; else a norm is made of single operations
    normed_heads: bool = False  # queries and keys, head by head
    parts_have_sequences: bool = False  # over a tensor axis norms are cut by the sequence; True: every rank has all of it

    @property
    def matrices(self) -> int:
        """Number of elements in the matrices of one block."""
        return 2 * self.dim * (self.queries + self.keys) + 3 * self.dim * self.width

    def shape(self, numbers: NumberFormats) -> ModelShape:
        layers = (self._embedding(numbers), *[self._block(numbers)] * self.layers, self._head(numbers), self._loss(numbers))
        return ModelShape(layers, heads=self.heads, sequence=self.context)

    def _embedding(self, numbers: NumberFormats) -> Layer:
        table = self.vocabulary * self.dim
        return Layer(
            name="the embedding",
            parameters=0 if self.tied else table,
            borrowed=table if self.tied else 0,
            saved=self.context * (TOKEN_ID_BYTES + self.dim * numbers.mask(MASTER_BYTES, self.dropout)),
            working=self.context * self.dim * MASTER_BYTES,
        )

    def _block(self, numbers: NumberFormats) -> Layer:
        dim, width, queries, keys, size, tokens = self.dim, self.width, self.queries, self.keys, numbers.compute, self.context
        norms = 2 * self._norm(dim, numbers)
        inputs = _inputs(3, dim, numbers) + _inputs(2, dim, numbers)  # of queries, keys and values; of gate and up
        sums = MASTER_BYTES * self.heads
        attention = size * (queries + 2 * keys + numbers.kernels.attention_copies * queries) + sums  # queries and keys are rotated
        feed_forward = size * width * (2 + 1 + 1)  # gate and up; silu; their product
        results = size * (
            queries + 2 * keys + 2 * dim + 2 * width
        )  # of the products: those; attention's output and the feed-forward's; gate and up
        dropped = 2 * dim * numbers.mask(size, self.dropout)
        attention_flops = 4 * tokens * queries  # a token's: scores and their use, without what a causal mask spares (PaLM's convention)
        return Layer(
            name="a block",
            parameters=self.matrices + self.vectors,
            matrices=self.matrices,
            saved=tokens * (norms + inputs + attention + self._head_norms(numbers) + feed_forward + dropped),
            gathered=tokens * (inputs + (norms if self.parts_have_sequences else 0)),
            working=tokens * (MASTER_BYTES * dim + 2 * size * width),  # gradients of the residual stream, of silu and of up
            deferred=tokens * (inputs + size * (queries + width) + results),
            input=tokens * MASTER_BYTES * dim,
            checkpoint=tokens * MASTER_BYTES * dim,
            products=tokens * (size * (2 * queries + 2 * keys + 2 * dim + 2 * width) + sums),
            keys_and_values=tokens * size * 2 * keys,
            flops=tokens * (2 * self.matrices + attention_flops),
            whole_input=self.parts_have_sequences,
            is_block=True,
        )

    def _norm(self, dim: int, numbers: NumberFormats) -> int:
        """Bytes a token: its fp32 input, the inverse root mean square; but for one kernel the value before the weight too."""
        fused = numbers.kernels.fused_norm and self.one_norm_kernel
        return MASTER_BYTES * (dim + 1) + (0 if fused else MASTER_BYTES * dim)

    def _head_norms(self, numbers: NumberFormats) -> int:
        """Bytes a token: queries and keys in fp32, by head the inverse root mean square, and the values before the weights."""
        heads = self.heads + self.heads * self.keys // self.queries
        return (MASTER_BYTES + numbers.compute) * (self.queries + self.keys) + MASTER_BYTES * heads if self.normed_heads else 0

    def _head(self, numbers: NumberFormats) -> Layer:
        table, tokens = self.vocabulary * self.dim, self.context
        cast = MASTER_BYTES * self.vocabulary if numbers.casts else 0
        inputs, norm = _inputs(1, self.dim, numbers), self._norm(self.dim, numbers)
        return Layer(
            name="the head",
            parameters=table + self.dim,
            matrices=table,
            saved=tokens * (norm + inputs),
            gathered=tokens * (inputs + (norm if self.parts_have_sequences else 0)),
            working=tokens * (numbers.compute * (self.vocabulary + self.dim) + cast),  # gradients of the logits and of their input
            deferred=tokens * (inputs + numbers.compute * self.vocabulary),
            input=tokens * MASTER_BYTES * self.dim,
            flops=2 * tokens * table,
            whole_input=self.parts_have_sequences,
        )

    def _loss(self, numbers: NumberFormats) -> Layer:
        """Cross entropy over fp32 logits: keeps their log-softmax; its backward makes the gradient of that and of the logits, torch's loss parallel
        (over a tensor axis) the softmax too."""
        logits = self.context * self.vocabulary * MASTER_BYTES
        cast = numbers.compute * self.context * self.vocabulary if numbers.casts else 0  # the logits before they are made fp32
        return Layer(
            name="the loss", saved=logits, working=2 * logits, working_if_sharded=logits, forward_working=logits + cast, input=logits
        )


def _inputs(products: int, dim: int, numbers: NumberFormats) -> int:
    """Bytes a token of a norm's output for so many products: it itself, or what autocast makes of it for each of them."""
    return numbers.compute * dim * (products if numbers.casts else 1)
