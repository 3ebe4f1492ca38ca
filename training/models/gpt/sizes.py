"""How many parameters a GPT has, from its spec alone. Pure; a test holds it to the built models."""

from __future__ import annotations

from paceline.training.models.gpt.config import GptModel

SWIGLU_MULTIPLE = 32


def swiglu_width(dim: int) -> int:
    """Hidden width of the gated feed-forward: 8/3 dim keeps the size of an ungated 4 dim (Shazeer 2020), rounded up to a multiple."""
    return -(-8 * dim // (3 * SWIGLU_MULTIPLE)) * SWIGLU_MULTIPLE


def gpt_parameters(model: GptModel) -> int:
    attention = 4 * model.dim**2
    feed_forward = 3 * model.dim * swiglu_width(model.dim)
    norms = 2 * model.dim
    embeddings = model.vocab_size * model.dim * (1 if model.tied_embeddings else 2)
    return model.layers * (attention + feed_forward + norms) + model.dim + embeddings
