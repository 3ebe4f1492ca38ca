"""Gradients of weights that can wait: backward hands on what the stage before needs, and leaves the other half of its products for later.

Linear layers and convolutions are computed with weights that autograd does not see; on the way back, what came in is noted with the gradient of
what came out. All other parameters, as those of norms, have little to compute and get their gradients at once.
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


class Product(NamedTuple):
    """That a layer's weights still lack."""

    layer: Any
    inputs: Tensor
    gradient: Tensor  # of the outputs

    def add(self) -> None:
        KINDS[type(self.layer)].add(self.layer, self.inputs, self.gradient)


class Kind(NamedTuple):
    """Of layers."""

    forward: Callable[[Any, Tensor, Tensor], Tensor]  # from layer, inputs and weight
    add: Callable[[Any, Tensor, Tensor], None]  # to the weight's gradient: from layer, inputs and the gradient of the outputs


def add_linear(layer: nn.Linear, inputs: Tensor, gradient: Tensor) -> None:
    left, right, sum_ = gradient.reshape(-1, layer.out_features).t(), inputs.reshape(-1, layer.in_features), layer.weight.grad
    if sum_ is not None and sum_.dtype is left.dtype:
        sum_.addmm_(left, right)  # saves a pass over it
    else:
        add(layer.weight, left @ right)


def convolution(gradient_of_weight: Callable[..., Tensor]) -> Kind:
    def forward(layer: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        outputs: Tensor = layer._conv_forward(inputs, weight, layer.bias)
        return outputs

    def add_convolution(layer: Any, inputs: Tensor, gradient: Tensor) -> None:
        how = (layer.stride, layer.padding, layer.dilation, layer.groups)
        add(layer.weight, gradient_of_weight(inputs, layer.weight.shape, gradient, *how))

    return Kind(forward, add_convolution)


def add(weight: Tensor, found: Tensor) -> None:
    weight.grad = found.to(weight.dtype) if weight.grad is None else weight.grad.add_(found)


KINDS: Mapping[type[nn.Module], Kind] = MappingProxyType(
    {
        nn.Linear: Kind(lambda layer, inputs, weight: F.linear(inputs, weight, layer.bias), add_linear),
        nn.Conv1d: convolution(grad.conv1d_weight),
        nn.Conv2d: convolution(grad.conv2d_weight),
        nn.Conv3d: convolution(grad.conv3d_weight),
    }
)


def can_wait(layer: nn.Module) -> bool:
    """Subclasses may compute something else; and padding by anything but zeros makes other inputs."""
    plain = getattr(layer, "padding_mode", "zeros") == "zeros" and not isinstance(getattr(layer, "padding", 0), str)
    return type(layer) in KINDS and plain


class PutOff:
    """Of one rank's layers: those in `modules`, which are called through it from now on. Of no modules nothing is put off."""

    def __init__(self, modules: Iterable[nn.Module] = ()) -> None:
        self._products: list[Product] | None = None
        for layer in {layer for module in modules for layer in module.modules() if can_wait(layer)}:
            layer.forward = functools.partial(self._call, layer, layer.forward)

    @contextlib.contextmanager
    def collecting(self, products: list[Product] | None) -> Iterator[None]:
        """Around a forward pass: there goes what its backward leaves undone; None: nowhere, it leaves nothing. And around that, where something may be
        computed again."""
        self._products = products
        try:
            yield
        finally:
            self._products = None

    def _call(self, layer: Any, forward: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
        if self._products is None or not (torch.is_grad_enabled() and inputs.requires_grad and layer.weight.requires_grad):
            return forward(inputs)
        inputs = as_computed(inputs)
        outputs = KINDS[type(layer)].forward(layer, inputs, layer.weight.detach())
        noted: Tensor = Noted.apply(outputs, inputs.detach(), layer, self._products)  # type: ignore[no-untyped-call]
        return noted


def as_computed(inputs: Tensor) -> Tensor:
    """Under autocast what is computed from is another tensor, and the smaller one to keep."""
    kind = inputs.device.type
    casts = torch.is_autocast_enabled(kind) and inputs.dtype is torch.float32
    return inputs.to(torch.get_autocast_dtype(kind)) if casts else inputs


class Noted(torch.autograd.Function):
    """A layer's outputs as they are; their gradient is noted. autograd keeps the inputs, and sees whether someone changes them."""

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
