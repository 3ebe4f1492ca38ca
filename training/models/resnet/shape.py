"""What the residual network keeps for backward, counted from the operations of `model.py`. Pure.

A convolution keeps its input, batch norm the convolution's result, ReLU its own, which is the next convolution's input: two tensors a
convolution, and the images. The addition keeps nothing; of a shortcut's convolution only its result is kept. Pooling keeps the place of each maximum. Not counted: the unfolded image that torch makes on one CPU thread where a micro-batch is
a single image.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from paceline.parallelism.model_shape import MASTER_BYTES, Layer, ModelShape, NumberFormats
from paceline.training.models.mlp.shape import CLASS_ID_BYTES, head, loss
from paceline.training.models.resnet import imagenet
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.models.resnet.imagenet import Convolution
from paceline.training.models.resnet.sizes import convolution

SIDE = 32
COLOURS = 3
CLASSES = 10
#: The size of the index of a maximum, which is an int64 of torch.
PLACE_BYTES = 8


def shape(spec: ResnetModel, numbers: NumberFormats) -> ModelShape:
    if spec.form == "imagenet":
        return imagenet_shape(spec, numbers)
    images = COLOURS * SIDE**2
    blocks = (spec.depth - 2) // 6
    layers = [_data(images, numbers), _stretch("the stem", (COLOURS,), spec.width, SIDE, images, numbers)]
    before = spec.width * SIDE**2
    for stage, width in enumerate((spec.width, 2 * spec.width, 4 * spec.width)):
        side = SIDE >> stage
        for number in range(blocks):
            fan_in = width // 2 if stage and number == 0 else width
            layers.append(_stretch(f"block {stage}.{number}", (fan_in, width), width, side, before, numbers))
            before = width * side**2
    return ModelShape((*layers, head(4 * spec.width, CLASSES, numbers), loss(CLASSES)))


def imagenet_shape(spec: ResnetModel, numbers: NumberFormats, side: int = SIDE, classes: int = CLASSES) -> ModelShape:
    """Return the shape of the ImageNet form on images of `side` by `side` pixels; jobs have CIFAR's."""
    images = COLOURS * side**2
    features = imagenet.features(spec.depth, spec.width)
    layers = _imagenet_layers(spec, side, images, numbers)
    return ModelShape((_data(images, numbers), *layers, head(features, classes, numbers), loss(classes)))


def _data(images: int, numbers: NumberFormats) -> Layer:
    return Layer(name="the data", saved=MASTER_BYTES * images + CLASS_ID_BYTES + (numbers.compute * images if numbers.casts else 0))


def _stretch(name: str, channels: tuple[int, ...], width: int, side: int, inputs: int, numbers: NumberFormats) -> Layer:
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


def _imagenet_layers(spec: ResnetModel, side: int, images: int, numbers: NumberFormats) -> Iterator[Layer]:
    """The stem with its pooling, and the blocks."""
    side //= 2
    stem = _convolutions("the stem", (imagenet.stem(spec.width),), None, side, side, images, numbers)
    side //= 2
    pooled = spec.width * side**2
    yield replace(stem, saved=stem.saved + (PLACE_BYTES + numbers.compute) * pooled, is_block=False)
    before = pooled
    for block in imagenet.blocks(spec.depth, spec.width):
        entered, side = side, side // block.stride
        yield _convolutions(block.name, block.convolutions, block.shortcut, entered, side, before, numbers)
        before = block.convolutions[-1].fan_out * side**2


def _convolutions(
    name: str, inside: tuple[Convolution, ...], shortcut: Convolution | None, entered: int, side: int, inputs: int, numbers: NumberFormats
) -> Layer:
    """Convolutions one after another, from `entered` by `entered` pixels to `side` by `side`, and a shortcut beside them."""
    sides = [entered if number < _strided(inside) else side for number in range(len(inside))]
    results = [each.fan_out * size**2 for each, size in zip(inside, sides, strict=True)]
    beside = [] if shortcut is None else [shortcut]
    kept = 2 * sum(results) + sum(each.fan_out * side**2 for each in beside)
    every = (*inside, *beside)
    return Layer(
        name=name,
        parameters=sum(each.parameters for each in every),
        matrices=sum(each.weights for each in every),
        saved=numbers.compute * kept,
        working=numbers.compute * 4 * max(results),
        deferred=numbers.compute * kept,
        reordered=numbers.compute * 2 * max(each.weights for each in every),
        input=numbers.compute * inputs,
        checkpoint=numbers.compute * results[-1],
        flops=sum(2 * each.weights * size**2 for each, size in zip(every, (*sides, *(side for _ in beside)), strict=True)),
        is_block=True,
    )


def _strided(inside: tuple[Convolution, ...]) -> int:
    """Return the number of the convolution from which on images are smaller; the last one's where none are."""
    return next((number for number, each in enumerate(inside) if each.stride > 1), len(inside))
