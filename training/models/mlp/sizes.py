"""How many parameters a perceptron has, from its sizes alone. Pure; a test holds it to the built models."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

#: (input features, classes) of the classification data sets, as an MLP sees them.
CLASSIFICATION_SHAPES = {"digits": (64, 10), "mnist": (28 * 28, 10), "cifar10": (3 * 32 * 32, 10)}


def mlp_parameters(hidden: Sequence[int], inputs: int, classes: int) -> int:
    return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise((inputs, *hidden, classes)))
