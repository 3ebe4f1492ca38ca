"""A GPT as the planner knows it. Pure; see `decoder.py`."""

from __future__ import annotations

from paceline.parallelism.model_shape import ModelShape, NumberFormats
from paceline.training.models.decoder import Decoder
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.sizes import swiglu_width


def shape(spec: GptModel, numbers: NumberFormats) -> ModelShape:
    decoder = Decoder(
        context=spec.context,
        vocabulary=spec.vocab_size,
        layers=spec.layers,
        dim=spec.dim,
        heads=spec.heads,
        queries=spec.dim,
        keys=spec.dim,
        width=swiglu_width(spec.dim),
        vectors=2 * spec.dim,
        tied=spec.tied_embeddings,
        dropout=spec.dropout,
    )
    return decoder.shape(numbers)
