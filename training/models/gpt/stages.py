"""Where a GPT may be split into stages: between its blocks. The embedding goes with the first stage, norm and head with the last."""

from __future__ import annotations

import functools

from torch import Tensor

from paceline.parallelism.pipelines.chain import Unit
from paceline.training.models.gpt.model import Gpt, TransformerBlock


def units(model: Gpt) -> list[Unit]:
    blocks = (block for block in model.blocks if isinstance(block, TransformerBlock))
    return [
        Unit((model.embedding,), lambda tokens: model.dropout(model.embedding(tokens))),
        *(Unit((block,), functools.partial(run_block, model, block)) for block in blocks),
        Unit((model.norm, model.head), lambda hidden: model.head(model.norm(hidden))),
    ]


def run_block(model: Gpt, block: TransformerBlock, hidden: Tensor) -> Tensor:
    output: Tensor = block(hidden, model.cosine, model.sine)
    return output
