"""How many parameters a residual network has, from its spec alone. Pure; a test holds it to the built models."""

from __future__ import annotations

from paceline.training.models.resnet import imagenet
from paceline.training.models.resnet.config import ResnetModel


def resnet_parameters(model: ResnetModel) -> int:
    if model.form == "imagenet":
        inside = (each.parameters for block in imagenet.blocks(model.depth, model.width) for each in block.all)
        return imagenet.stem(model.width).parameters + sum(inside) + (imagenet.features(model.depth, model.width) + 1) * 10
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
