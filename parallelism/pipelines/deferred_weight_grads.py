"""Backward split in two (zero bubble): the input gradients that the stage before needs come first, weight gradients later.

Linear layers and convolutions are computed with weights that autograd does not see. In backward, the layer's inputs are recorded with the
gradient of its outputs; the product of both is the weight's gradient. All other parameters, such as those of norms, have little to
compute and get their gradients at once.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn import grad

from paceline.distributed.torch_private import convolve


class Product(NamedTuple):
    """The product that gives one layer's weight gradient for one micro-batch."""

    layer: Any
    inputs: Tensor
    gradient: Tensor  # of the outputs

    def add(self) -> None:
        """Compute the product and add it to the weight's gradient."""
        KINDS[type(self.layer)].add(self.layer, self.inputs, self.gradient)


class LayerKind(NamedTuple):
    """How layers of one type are computed with a detached weight, and how their weight gradient is computed later."""

    forward: Callable[[Any, Tensor, Tensor], Tensor]  # from layer, inputs and weight
    add: Callable[[Any, Tensor, Tensor], None]  # adds to the weight's gradient: from layer, inputs and the gradient of the outputs


def add_linear(layer: nn.Linear, inputs: Tensor, gradient: Tensor) -> None:
    """Add the weight gradient of a linear layer."""
    left, right, sum_ = gradient.reshape(-1, layer.out_features).t(), inputs.reshape(-1, layer.in_features), layer.weight.grad
    if sum_ is not None and sum_.dtype is left.dtype:
        sum_.addmm_(left, right)  # saves a pass over memory
    else:
        add(layer.weight, left @ right)


def convolution(gradient_of_weight: Callable[..., Tensor]) -> LayerKind:
    """Return the `LayerKind` of a convolution, with torch's function for the gradient of its weight."""

    def forward(layer: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        return convolve(layer, inputs, weight)

    def add_convolution(layer: Any, inputs: Tensor, gradient: Tensor) -> None:
        how = (layer.stride, layer.padding, layer.dilation, layer.groups)
        add(layer.weight, gradient_of_weight(inputs, layer.weight.shape, gradient, *how))

    return LayerKind(forward, add_convolution)


def add(weight: Tensor, found: Tensor) -> None:
    """Add `found` to the gradient of `weight`."""
    weight.grad = found.to(weight.dtype) if weight.grad is None else weight.grad.add_(found)


KINDS: Mapping[type[nn.Module], LayerKind] = MappingProxyType(
    {
        nn.Linear: LayerKind(lambda layer, inputs, weight: F.linear(inputs, weight, layer.bias), add_linear),
        nn.Conv1d: convolution(grad.conv1d_weight),
        nn.Conv2d: convolution(grad.conv2d_weight),
        nn.Conv3d: convolution(grad.conv3d_weight),
    }
)


def is_deferrable(layer: nn.Module) -> bool:
    """Whether the weight gradient of `layer` can be deferred.

    Subclasses may compute something else, and padding other than zeros changes the inputs.
    """
    plain = getattr(layer, "padding_mode", "zeros") == "zeros" and not isinstance(getattr(layer, "padding", 0), str)
    return type(layer) in KINDS and plain


class DeferredWeightGrad:
    """Defers the weight gradients of the layers in `modules`, whose forward it replaces. Without modules nothing is deferred."""

    def __init__(self, modules: Iterable[nn.Module] = ()) -> None:
        self._products: list[Product] | None = None
        for layer in {layer for module in modules for layer in module.modules() if is_deferrable(layer)}:
            layer.forward = functools.partial(self._call, layer, layer.forward)

    @contextlib.contextmanager
    def collecting(self, products: list[Product] | None) -> Iterator[None]:
        """Collect in `products` what the backward of a forward pass inside the block leaves undone; None: backward leaves nothing undone.

        Use it around the backward too, where activations may be recomputed.
        """
        self._products = products
        try:
            yield
        finally:
            self._products = None

    def _call(self, layer: Any, forward: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        weight = layer.weight  # computed from a parameter in each call where the layer is pruned, or has spectral or weight norm
        is_trained = isinstance(weight, nn.Parameter) and weight.requires_grad
        if self._products is None or not (torch.is_grad_enabled() and inputs.requires_grad and is_trained):
            return forward(inputs)
        inputs = cast_as_computed(inputs)
        outputs = KINDS[type(layer)].forward(layer, inputs, weight.detach())
        noted: Tensor = RecordedLayer.apply(outputs, inputs.detach(), layer, self._products)  # type: ignore[no-untyped-call]
        return noted


def cast_as_computed(inputs: Tensor) -> Tensor:
    """Cast inputs as autocast does: that tensor is what is computed with, and the smaller one to keep."""
    kind = inputs.device.type
    casts = torch.is_autocast_enabled(kind) and inputs.dtype is torch.float32
    return inputs.to(torch.get_autocast_dtype(kind)) if casts else inputs


class RecordedLayer(torch.autograd.Function):
    """Passes a layer's outputs through and records their gradient in backward. autograd keeps the inputs and notices if they are
    modified.
    """

    @staticmethod
    def forward(context: Any, outputs: Tensor, inputs: Tensor, layer: nn.Module, products: list[Product]) -> Tensor:
        context.save_for_backward(inputs)
        context.layer, context.products = layer, products
        context.mark_dirty(outputs)
        return outputs

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        (inputs,) = context.saved_tensors
        context.products.append(Product(context.layer, inputs, gradient))
        return gradient, None, None, None
