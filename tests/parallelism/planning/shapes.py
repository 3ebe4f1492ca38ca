"""Shapes of made-up models, small enough to be counted by hand."""

from __future__ import annotations

from paceline.parallelism.model_shape import Layer, ModelShape

BLOCK = Layer(
    "a block",
    parameters=100,
    matrices=90,
    saved=1000,
    working=50,
    deferred=600,
    input=20,
    checkpoint=20,
    products=300,
    flops=10_000,
    is_block=True,
)


def decoder(blocks: int = 4, tied: bool = True) -> ModelShape:
    """An embedding, blocks, a head that may share the embedding's matrix, a loss."""
    table = 40
    embedding = Layer("the embedding", parameters=0 if tied else table, borrowed=table if tied else 0, saved=8)
    head = Layer("the head", parameters=table, matrices=table, saved=60, working=30, deferred=10, input=20, flops=4000)
    loss = Layer("the loss", saved=16, working=32, forward_working=16, input=16)
    return ModelShape((embedding, *[BLOCK] * blocks, head, loss), heads=4, sequence=64)
