"""Where a residual network may be split into stages: between its blocks."""

from __future__ import annotations

from torch.nn import functional as F

from paceline.parallelism.pipelines.chain import Unit, sequential_units
from paceline.training.models.resnet.model import Resnet


def units(model: Resnet) -> list[Unit]:
    return [
        Unit((model.stem,), lambda images: F.relu(model.stem(images))),
        *sequential_units(model.stages),
        Unit((model.head,), lambda hidden: model.head(hidden.mean(dim=(2, 3)))),
    ]
