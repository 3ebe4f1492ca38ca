"""Where a perceptron may be split into stages: between its layers."""

from __future__ import annotations

from paceline.parallelism.pipelines.chain import Unit, sequential_units
from paceline.training.models.mlp.model import Mlp


def units(model: Mlp) -> list[Unit]:
    return sequential_units(model.layers)
