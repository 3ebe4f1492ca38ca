"""Where a GPT may be cut: between its blocks. The embedding goes with the first cut, norm and head with the last."""

from __future__ import annotations

import functools

from torch import Tensor

from parallelism.pipelines.chain import Unit
from training.models.gpt.model import Block, Gpt


def units(model: Gpt) -> list[Unit]:
    blocks = (block for block in model.blocks if isinstance(block, Block))
    return [
        Unit((model.embedding,), lambda tokens: model.dropout(model.embedding(tokens))),
        *(Unit((block,), functools.partial(run_block, model, block)) for block in blocks),
        Unit((model.norm, model.head), lambda hidden: model.head(model.norm(hidden))),
    ]


def run_block(model: Gpt, block: Block, hidden: Tensor) -> Tensor:
    output: Tensor = block(hidden, model.cosine, model.sine)
    return output
