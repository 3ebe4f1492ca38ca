"""The `model` section of a multi-layer perceptron. Pure pydantic, no torch."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import FailFast, Field, model_validator

from paceline.training.models.mlp import presets
from paceline.training.models.presets import PRESET, spelled_out
from paceline.training.schema.parts import Fraction, Part, Whole

#: The width of the widest layer.
WIDEST = 1 << 20


class MlpModel(Part):
    kind: Literal["mlp"] = "mlp"
    preset: presets.Preset | None = Field(None, description=PRESET)
    hidden: Annotated[tuple[Annotated[Whole, Field(ge=1, le=WIDEST)], ...], FailFast()] = Field((128, 128), max_length=256)
    dropout: Fraction = 0.0

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, given: Any) -> Any:
        return spelled_out(given, presets.PRESETS)
