"""A multi-layer perceptron over flattened inputs."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from paceline.training.models.mlp.config import MlpModel


def build(spec: MlpModel, inputs: int, classes: int) -> Mlp:
    return Mlp(spec, inputs, classes)


class Mlp(nn.Module):
    def __init__(self, spec: MlpModel, inputs: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in, fan_out in pairwise((inputs, *spec.hidden)):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU(), nn.Dropout(spec.dropout)]
        layers.append(nn.Linear((inputs, *spec.hidden)[-1], classes))
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map (batch, ...) to logits (batch, classes)."""
        logits: Tensor = self.layers(inputs)
        return logits
