"""Named sizes of the perceptron. No torch: a spec is read with these on the coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

Preset = Literal["mlp-small", "mlp-medium", "mlp-large"]


class MlpShape(TypedDict):
    hidden: tuple[int, ...]


PRESETS: Mapping[Preset, MlpShape] = {
    "mlp-small": {"hidden": (128, 128)},
    "mlp-medium": {"hidden": (512, 512)},
    "mlp-large": {"hidden": (2048, 2048, 2048)},
}
