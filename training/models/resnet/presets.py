"""The depths of He et al. 2015, table 6, one four times as wide, and those of table 1 for ImageNet. No torch: a spec is read with these on the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypedDict

Preset = Literal["resnet-20", "resnet-32", "resnet-44", "resnet-56", "resnet-110", "resnet-38-wide", "resnet-18", "resnet-34", "resnet-50"]


class ResNetShape(TypedDict):
    depth: int
    width: int
    form: NotRequired[Literal["imagenet"]]


PRESETS: Mapping[Preset, ResNetShape] = {
    "resnet-20": {"depth": 20, "width": 16},
    "resnet-32": {"depth": 32, "width": 16},
    "resnet-44": {"depth": 44, "width": 16},
    "resnet-56": {"depth": 56, "width": 16},
    "resnet-110": {"depth": 110, "width": 16},
    "resnet-38-wide": {"depth": 38, "width": 64},
    "resnet-18": {"depth": 18, "width": 64, "form": "imagenet"},
    "resnet-34": {"depth": 34, "width": 64, "form": "imagenet"},
    "resnet-50": {"depth": 50, "width": 64, "form": "imagenet"},
}
