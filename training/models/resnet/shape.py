"""What the residual network keeps for backward, counted from the operations of `model.py`. Pure.

A convolution keeps its input, batch norm the convolution's result, ReLU its own, which is the next convolution's input: two tensors a
convolution, and the images. The addition keeps nothing. Not counted: the unfolded image that torch makes on one CPU thread where a micro-batch is
a single image.
"""

from __future__ import annotations

from paceline.parallelism.model_shape import MASTER_BYTES, Layer, ModelShape, Numbers
from paceline.training.models.mlp.shape import CLASS_ID_BYTES, head, loss
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.models.resnet.sizes import convolution

SIDE = 32
COLOURS = 3
CLASSES = 10


def shape(spec: ResnetModel, numbers: Numbers) -> ModelShape:
    blocks = (spec.depth - 2) // 6
    images = COLOURS * SIDE**2
    data = Layer(name="the data", saved=MASTER_BYTES * images + CLASS_ID_BYTES + (numbers.compute * images if numbers.casts else 0))
    layers = [data, _stretch("the stem", (COLOURS,), spec.width, SIDE, images, numbers)]
    before = spec.width * SIDE**2
    for stage, width in enumerate((spec.width, 2 * spec.width, 4 * spec.width)):
        side = SIDE >> stage
        for number in range(blocks):
            fan_in = width // 2 if stage and number == 0 else width
            layers.append(_stretch(f"block {stage}.{number}", (fan_in, width), width, side, before, numbers))
            before = width * side**2
    return ModelShape((*layers, head(4 * spec.width, CLASSES, numbers), loss(CLASSES)))


def _stretch(name: str, channels: tuple[int, ...], width: int, side: int, inputs: int, numbers: Numbers) -> Layer:
    """A convolution to `width` channels for each of `channels`, onto `side` by `side` pixels; `inputs` elements come in."""
    elements = width * side**2
    return Layer(
        name=name,
        parameters=sum(convolution(each, width) for each in channels),
        matrices=sum(9 * each * width for each in channels),
        saved=numbers.compute * 2 * len(channels) * elements,
        working=numbers.compute * 4 * elements,  # gradients of the shortcut, of both sides of batch norm, and one made row-major
        deferred=numbers.compute * 2 * len(channels) * elements,
        reordered=numbers.compute * 2 * 9 * width**2,  # a convolution's weights and their gradient, in the kernel's layout
        input=numbers.compute * inputs,
        checkpoint=numbers.compute * elements,  # what its last ReLU made, which is the next one's input
        flops=sum(2 * 9 * each * elements for each in channels),
        is_block=len(channels) > 1,
    )
