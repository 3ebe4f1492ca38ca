"""How many parameters a residual network has, from its spec alone. Pure; a test holds it to the built models."""

from __future__ import annotations

from paceline.training.models.resnet.config import ResnetModel


def resnet_parameters(model: ResnetModel) -> int:
    blocks = (model.depth - 2) // 6
    widths = (model.width, 2 * model.width, 4 * model.width)
    total = convolution(3, model.width) + widths[-1] * 10 + 10
    fan_in = model.width
    for width in widths:
        total += convolution(fan_in, width) + convolution(width, width) + (blocks - 1) * 2 * convolution(width, width)
        fan_in = width
    return total


def convolution(fan_in: int, fan_out: int) -> int:
    """A 3x3 convolution without bias and the two vectors of its batch norm."""
    return 9 * fan_in * fan_out + 2 * fan_out
