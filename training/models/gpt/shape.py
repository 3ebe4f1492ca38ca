"""A GPT as the planner knows it. Pure; see `decoder.py`."""

from __future__ import annotations

from parallelism.planning.shape import Numbers, Shape
from training.models.decoder import Decoder
from training.planning.sizes import swiglu_width
from training.spec.workload import GptModel


def shape(spec: GptModel, numbers: Numbers) -> Shape:
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
