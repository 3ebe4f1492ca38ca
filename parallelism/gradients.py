"""What is left to do to gradients after the last backward: add up what ranks have seen apart, and take their norm over all axes.

Gradients may be plain (the same on every rank) or DTensors on different meshes; torch's own norm takes one kind at a time, and takes
what is not added up yet for a whole. All that waits for other ranks waits in our `Line`s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from distributed.lines import Line
from parallelism.mesh import local_part

Lines = Mapping[str, Line]
#: Along these axes ranks hold the same parameters, or the same parts of them, and have seen other positions or samples.
SUMMED = ("context", "replicate")
#: As in torch: no division by zero.
CLIP_EPSILON = 1e-6


class UnsettledGradientError(RuntimeError):
    """A gradient that its ranks have not added up yet."""


@torch.no_grad()
def sum_gradients(parameters: Iterable[nn.Parameter], lines: Lines) -> None:
    parts = [local_part(gradient) for gradient in gradients_of(parameters)]
    for axis in SUMMED:
        if axis in lines:
            add_up(lines[axis], parts)


@torch.no_grad()
def settle_gradients(parameters: Sequence[nn.Parameter], tensor: Line) -> None:
    """Add up over the tensor axis what every rank has whole (norms), of whose gradients each has seen its own positions only. Where the gradient
    of a matrix that is cut came out whole (an embedding's), each keeps its own part."""
    unsettled = [(parameter, parameter.grad) for parameter in parameters if is_partial(parameter.grad)]
    add_up(tensor, [local_part(gradient) for _, gradient in unsettled if gradient is not None])
    for parameter, gradient in unsettled:
        assert isinstance(gradient, DTensor)
        parameter.grad = DTensor.from_local(gradient.to_local(), gradient.device_mesh, [Replicate()], run_check=False)
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(parameter, DTensor) and isinstance(gradient, DTensor) and gradient.placements != parameter.placements:
            parameter.grad = gradient.redistribute(placements=parameter.placements)


@torch.no_grad()
def add_up(line: Line, tensors: Sequence[Tensor]) -> None:
    """Of all ranks in the line, in place, in one flat message for each data type.

    Hazard: gloo adds up memory as it lies. Row-major copies keep layouts that differ between ranks from mixing up elements.
    """
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = line.sum(torch.cat([tensor.reshape(-1) for tensor in same]))
        for tensor, piece in zip(same, torch.split(flat, [tensor.numel() for tensor in same]), strict=True):
            tensor.copy_(piece.view(tensor.shape))


@torch.no_grad()
def global_norm(gradients: Iterable[Tensor], lines: Lines) -> Tensor:
    """A plain scalar, the same on every rank: of all gradients, whatever axes cut them. All ranks of those call it together, with the same
    gradients in the same order."""
    parts: dict[tuple[str, ...], list[Tensor]] = {}
    for gradient in gradients:
        parts.setdefault(axes_of(gradient), []).append(local_part(gradient))
    norms = [norm_along([lines[axis] for axis in axes], tensors) for axes, tensors in parts.items()]
    return norms[0] if len(norms) == 1 else nn.utils.get_total_norm(norms)


def norm_along(lines: Sequence[Line], tensors: list[Tensor]) -> Tensor:
    norm = nn.utils.get_total_norm(tensors)
    if not lines:
        return norm  # not by way of its square: the same bits as ever
    square = norm.square()
    for line in lines:
        line.sum(square)
    return square.sqrt()


@torch.no_grad()
def cut_down(gradients: Sequence[Tensor], norm: Tensor, limit: float | None) -> None:
    """In place, so that the norm of all is `limit` at most; `norm`: what it is."""
    if limit is not None and gradients:
        parts = [local_part(gradient) for gradient in gradients]
        torch._foreach_mul_(parts, torch.clamp(limit / (norm + CLIP_EPSILON), max=1.0).to(parts[0].device))


def axes_of(gradient: Tensor) -> tuple[str, ...]:
    """Along which it is cut."""
    if not isinstance(gradient, DTensor):
        return ()
    if is_partial(gradient):
        raise UnsettledGradientError(f"a gradient of shape {tuple(gradient.shape)} is {gradient.placements}; call settle_gradients first")
    names = gradient.device_mesh.mesh_dim_names or ()
    return tuple(axis for axis, placement in zip(names, gradient.placements, strict=True) if not placement.is_replicate())


def is_partial(gradient: Tensor | None) -> bool:
    return isinstance(gradient, DTensor) and any(placement.is_partial() for placement in gradient.placements)


def gradients_of(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
