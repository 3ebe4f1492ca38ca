"""What a multi-layer perceptron keeps for backward, counted from the operations of `model.py`. Pure."""

from __future__ import annotations

from itertools import pairwise

from paceline.parallelism.model_shape import MASTER_BYTES, Layer, ModelShape, NumberFormats
from paceline.training.models.mlp.config import MlpModel

CLASS_ID_BYTES = 8


def shape(spec: MlpModel, inputs: int, classes: int, numbers: NumberFormats) -> ModelShape:
    hidden = [
        _hidden(fan_in, fan_out, spec.dropout, numbers, number) for number, (fan_in, fan_out) in enumerate(pairwise((inputs, *spec.hidden)))
    ]
    data = Layer(name="the data", saved=MASTER_BYTES * inputs + CLASS_ID_BYTES + (numbers.compute * inputs if numbers.casts else 0))
    return ModelShape((data, *hidden, head((inputs, *spec.hidden)[-1], classes, numbers), loss(classes)))


def _hidden(fan_in: int, fan_out: int, dropout: float, numbers: NumberFormats, number: int) -> Layer:
    """A product, which keeps the input that the layer before has counted; ReLU, which keeps its result; dropout its mask and its result."""
    element = numbers.compute + (numbers.mask(numbers.compute, dropout) + numbers.compute if dropout else 0)
    return Layer(
        name=f"layer {number}",
        parameters=(fan_in + 1) * fan_out,
        matrices=(fan_in + 1) * fan_out,
        saved=element * fan_out,
        working=2 * numbers.compute * fan_out,
        deferred=numbers.compute * (fan_in + fan_out),
        input=numbers.compute * fan_in,
        checkpoint=element * fan_out,  # ReLU and dropout are no part of the block, which is the product alone
        flops=2 * fan_in * fan_out,
        is_block=True,
    )


def head(fan_in: int, classes: int, numbers: NumberFormats) -> Layer:
    return Layer(
        name="the head",
        parameters=(fan_in + 1) * classes,
        matrices=(fan_in + 1) * classes,
        working=numbers.compute * (classes + fan_in),
        deferred=numbers.compute * (fan_in + classes),
        input=numbers.compute * fan_in,
        flops=2 * fan_in * classes,
    )


def loss(classes: int) -> Layer:
    """Cross entropy over fp32 logits: keeps their log-softmax; its backward makes the gradient of that and of the logits."""
    logits = MASTER_BYTES * classes
    return Layer(name="the loss", saved=logits, working=2 * logits, forward_working=logits, input=logits)
