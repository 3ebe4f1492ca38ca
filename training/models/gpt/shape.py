"""What a GPT keeps for backward, counted from the operations of `model.py`. Pure.

A block keeps 16 d + 7 c d + 4 c w + 8 + 4 h bytes a token (CPU, no dropout; c: bytes of an element in the forward pass, w: width of the
feed-forward), and 3 c d more under autocast, where each product makes a copy of its input for itself. Korthikanti et al. 2022, equation 1,
count 34 d + 5 h s / d for two-byte elements, an ungated feed-forward with w = 4 d and an attention that keeps its scores. Ours never keeps
the scores: attention computes them again (Dao et al. 2022).
"""

from __future__ import annotations

from parallelism.planning.shape import MASTER_BYTES, Layer, Numbers, Shape
from training.planning.sizes import swiglu_width
from training.spec.workload import GptModel

TOKEN_ID_BYTES = 8


def shape(spec: GptModel, numbers: Numbers) -> Shape:
    layers = (_embedding(spec, numbers), *[_block(spec, numbers)] * spec.layers, _head(spec, numbers), _loss(spec, numbers))
    return Shape(layers, heads=spec.heads, sequence=spec.context)


def _embedding(spec: GptModel, numbers: Numbers) -> Layer:
    table = spec.vocab_size * spec.dim
    return Layer(
        name="the embedding",
        parameters=0 if spec.tied_embeddings else table,
        borrowed=table if spec.tied_embeddings else 0,
        saved=spec.context * (TOKEN_ID_BYTES + spec.dim * numbers.mask(MASTER_BYTES, spec.dropout)),
        working=spec.context * spec.dim * MASTER_BYTES,
    )


def _block(spec: GptModel, numbers: Numbers) -> Layer:
    dim, width, size, tokens = spec.dim, swiglu_width(spec.dim), numbers.compute, spec.context
    matrices = 4 * dim**2 + 3 * dim * width
    inputs = _inputs(3, dim, numbers) + _inputs(2, dim, numbers)  # of qkv; of gate and up
    attention = size * dim * (2 + 1 + numbers.kernels.attention_copies) + MASTER_BYTES * spec.heads  # rotated q and k; v; result; sums
    feed_forward = size * width * (2 + 1 + 1)  # gate and up; silu; their product
    results = size * ((3 + 1 + 1) * dim + 2 * width)  # of the products: qkv, attention's output and the feed-forward's; gate and up
    dropped = 2 * dim * numbers.mask(size, spec.dropout)
    attention_flops = 4 * tokens * dim  # a token's: scores and their use, without what a causal mask spares (PaLM's convention)
    return Layer(
        name="a block",
        parameters=matrices + 2 * dim,
        matrices=matrices,
        saved=tokens * (2 * _norm(dim, numbers) + inputs + attention + feed_forward + dropped),
        gathered=tokens * inputs,
        working=tokens * (MASTER_BYTES * dim + 2 * size * width),  # gradients of the residual stream, of silu and of up
        put_off=tokens * (inputs + size * (dim + width) + results),
        input=tokens * MASTER_BYTES * dim,
        checkpoint=tokens * MASTER_BYTES * dim,
        products=tokens * (size * (3 + 1 + 1 + 1) * dim + MASTER_BYTES * spec.heads + size * 2 * width),
        flops=tokens * (2 * matrices + attention_flops),
        is_block=True,
    )


def _norm(dim: int, numbers: Numbers) -> int:
    """Bytes a token: its input in the residual stream, the inverse root mean square; on the CPU the value before the weight too."""
    return MASTER_BYTES * (dim + 1) + (0 if numbers.kernels.fused_norm else MASTER_BYTES * dim)


def _inputs(products: int, dim: int, numbers: Numbers) -> int:
    """Bytes a token of a norm's output for so many products: it itself, or what autocast makes of it for each of them."""
    return numbers.compute * dim * (products if numbers.casts else 1)


def _head(spec: GptModel, numbers: Numbers) -> Layer:
    table, tokens = spec.vocab_size * spec.dim, spec.context
    cast = MASTER_BYTES * spec.vocab_size if numbers.casts else 0
    return Layer(
        name="the head",
        parameters=table + spec.dim,
        matrices=table,
        saved=tokens * (_norm(spec.dim, numbers) + _inputs(1, spec.dim, numbers)),
        gathered=tokens * _inputs(1, spec.dim, numbers),
        working=tokens * (numbers.compute * (spec.vocab_size + spec.dim) + cast),  # gradients of the logits and of their input
        put_off=tokens * (_inputs(1, spec.dim, numbers) + numbers.compute * spec.vocab_size),
        input=tokens * MASTER_BYTES * spec.dim,
        flops=2 * tokens * table,
    )


def _loss(spec: GptModel, numbers: Numbers) -> Layer:
    """Cross entropy over fp32 logits: keeps their log-softmax; its backward makes the gradient of that and of the logits, torch's loss parallel
    (over a tensor axis) the softmax too."""
    logits = spec.context * spec.vocab_size * MASTER_BYTES
    cast = numbers.compute * spec.context * spec.vocab_size if numbers.casts else 0  # the logits before they are made fp32
    return Layer(name="the loss", saved=logits, working=2 * logits, working_if_cut=logits, forward_working=logits + cast, input=logits)
