"""The `model` section of a residual network. Pure pydantic, no torch."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from paceline.training.models.presets import PRESET, spelled_out
from paceline.training.models.resnet import presets
from paceline.training.schema.parts import Part, Whole, inconsistent


class ResnetModel(Part):
    """CIFAR-style residual network (He et al. 2015, section 4.2): depth = 6n + 2."""

    kind: Literal["resnet"] = "resnet"
    preset: presets.Preset | None = Field(None, description=PRESET)
    depth: Whole = Field(20, ge=8, le=1202)
    width: Whole = Field(16, ge=1, le=1024, description="channels of the first stage")

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, given: Any) -> Any:
        return spelled_out(given, presets.PRESETS)

    @field_validator("depth")
    @classmethod
    def check_depth(cls, depth: int) -> int:
        if (depth - 2) % 6:
            below = (depth - 2) // 6 * 6 + 2
            raise inconsistent("depth={depth} is not 6n + 2; use {below} or {above}", depth=depth, below=below, above=below + 6)
        return depth
