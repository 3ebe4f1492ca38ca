"""The `model` section of a residual network. Pure pydantic, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, model_validator

from paceline.training.models.presets import PRESET, spelled_out
from paceline.training.models.resnet import presets
from paceline.training.models.resnet.imagenet import STAGES
from paceline.training.schema.parts import Part, Whole, inconsistent

CIFAR: Literal["cifar"] = "cifar"
IMAGENET_SHAPE: Mapping[str, object] = {"form": "imagenet", "width": 64}


def _absent(value: object) -> bool:
    """Whether a field can be left out of a document: nodes of the version before do not know it."""
    return value in (None, CIFAR)


class ResnetModel(Part):
    """Residual network (He et al. 2015): in the form for CIFAR (section 4.2, depth = 6n + 2) or in that for ImageNet (table 1, depth 18, 34 or 50)."""

    kind: Literal["resnet"] = "resnet"
    preset: presets.Preset | None = Field(None, description=PRESET)
    num_layers: Whole | None = Field(None, exclude_if=_absent, description="Depth as 18, 34 or 50: the ImageNet form with a width of 64.")
    form: Literal["cifar", "imagenet"] = Field(
        CIFAR,
        exclude_if=_absent,
        description="cifar: three stages after a 3x3 stem. imagenet: 7x7 stem with pooling, four stages, bottlenecks at depth 50.",
    )
    depth: Whole = Field(20, ge=8, le=1202)
    width: Whole = Field(16, ge=1, le=1024, description="Channels of the first stage.")

    @model_validator(mode="before")
    @classmethod
    def expand_preset(cls, given: Any) -> Any:
        """Write the numbers in the place of a preset, or of `num_layers`."""
        given = spelled_out(given, presets.PRESETS)
        layers = given.get("num_layers") if isinstance(given, Mapping) else None
        if layers is None or not isinstance(layers, int) or isinstance(layers, bool):
            return given
        if given.get("depth") not in (None, layers):
            raise inconsistent(
                "num_layers={layers} and depth={depth} are the same thing; give one of them", layers=layers, depth=given["depth"]
            )
        check_layers(layers, str(given.get("form", CIFAR)))
        meant = IMAGENET_SHAPE if layers in STAGES and given.get("form") != CIFAR else {}
        return {**meant, **given, "depth": layers, "num_layers": None}

    @model_validator(mode="after")
    def check_depth(self) -> ResnetModel:
        if self.form == "imagenet" and self.depth not in STAGES:
            raise inconsistent("depth={depth} has no ImageNet form; use 18, 34 or 50", depth=self.depth)
        if self.form == CIFAR and (self.depth - 2) % 6:
            below = (self.depth - 2) // 6 * 6 + 2
            also = f", or num_layers={self.depth}, which is the ImageNet form" if self.depth in STAGES else ""
            raise inconsistent(
                "depth={depth} is not 6n + 2; use {below} or {above}{also}", depth=self.depth, below=below, above=below + 6, also=also
            )
        return self


def check_layers(layers: int, form: str) -> None:
    """Refuse, by the name that was typed, a number of layers that neither form has, or that is not of the ImageNet form where that is asked for."""
    if layers in STAGES:
        return
    if form == "imagenet":
        raise inconsistent("num_layers={layers} has no ImageNet form; use 18, 34 or 50", layers=layers)
    if (layers - 2) % 6:
        below = max(8, (layers - 2) // 6 * 6 + 2)
        raise inconsistent(
            "num_layers={layers} is not known; use 18, 34 or 50, the ImageNet form, or 6n + 2, such as {below} or {above}, the form for CIFAR",
            layers=layers,
            below=below,
            above=below + 6,
        )
