"""The `model` section of a GPT. Pure pydantic, no torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from paceline.training.models.gpt import presets
from paceline.training.models.presets import PRESET, spelled_out
from paceline.training.schema.parts import Fraction, Part, Whole, inconsistent

#: In a vocabulary.
MOST_TOKENS = 1 << 24


class GptModel(Part):
    """Pre-norm decoder over bytes or tokens: RoPE, SwiGLU, optionally tied embeddings."""

    kind: Literal["gpt"] = "gpt"
    preset: presets.Preset | None = Field(None, description=PRESET)
    layers: Whole = Field(4, ge=1, le=256)
    heads: Whole = Field(4, ge=1, le=256)
    dim: Whole = Field(256, ge=8, le=65536, description="Width of the residual stream.")
    context: Whole = Field(128, ge=8, le=1_048_576, description="Tokens per sequence.")
    vocab_size: Whole = Field(256, ge=2, le=MOST_TOKENS)
    dropout: Fraction = 0.0
    tied_embeddings: bool = True

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, given: Any) -> Any:
        return spelled_out(given, presets.PRESETS)

    @model_validator(mode="after")
    def check_heads(self) -> GptModel:
        if self.dim % self.heads or (self.dim // self.heads) % 2:
            raise inconsistent(
                "dim={dim} must be an even multiple of heads={heads} (rotary embeddings need an even head size)",
                dim=self.dim,
                heads=self.heads,
            )
        return self
