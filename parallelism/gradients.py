"""What is left to do to gradients after the last backward: add up what ranks have seen apart, and cut their norm.

Gradients may be plain (the same on every rank) or DTensors on different meshes; torch's own norm takes one kind at a time, and takes
what is not added up yet for a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate

#: Over which dimensions of which mesh a tensor is spread.
Spread = tuple[DeviceMesh | None, tuple[int, ...]]


class UnsettledGradientError(RuntimeError):
    """A gradient that its ranks have not added up yet."""


@torch.no_grad()
def sum_gradients(parameters: Iterable[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Add up over a group whose ranks hold the same parameters, or the same parts of them."""
    add_up([local(gradient) for gradient in gradients_of(parameters)], group)


@torch.no_grad()
def settle_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Add up over the tensor axis what every rank has whole (norms), of whose gradients each has seen its own positions only."""
    unsettled = [(parameter, parameter.grad) for parameter in parameters if is_partial(parameter.grad)]
    meshes = dict.fromkeys(gradient.device_mesh for _, gradient in unsettled if isinstance(gradient, DTensor))
    for mesh in meshes:
        settle_on(mesh, [parameter for parameter, gradient in unsettled if isinstance(gradient, DTensor) and gradient.device_mesh == mesh])


def settle_on(mesh: DeviceMesh, parameters: Sequence[nn.Parameter]) -> None:
    parts = [local(gradient) for gradient in gradients_of(parameters)]
    add_up(parts, mesh.get_group())
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = DTensor.from_local(part, mesh, [Replicate()], run_check=False)


def add_up(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """In place, in one flat buffer for each data type.

    Hazard: gloo adds up memory as it lies. Row-major copies keep layouts that differ between ranks from mixing up elements.
    """
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        dist.all_reduce(flat, group=group)
        for tensor, piece in zip(same, torch.split(flat, [tensor.numel() for tensor in same]), strict=True):
            tensor.copy_(piece.view(tensor.shape))


@torch.no_grad()
def clip(parameters: Iterable[nn.Parameter], limit: float | None) -> Tensor:
    """Cut the norm of all gradients to `limit`; what it was before. As torch.nn.utils.clip_grad_norm_ does it for plain gradients."""
    gradients = gradients_of(parameters)
    norm = total_norm(gradients)
    if limit is not None and gradients:
        torch._foreach_mul_([local(gradient) for gradient in gradients], (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


@torch.no_grad()
def total_norm(gradients: Iterable[Tensor]) -> Tensor:
    """A plain scalar, the same on every rank. All ranks of the meshes call it together, with the same gradients in the same order."""
    parts: dict[Spread, list[Tensor]] = {}
    for gradient in gradients:
        parts.setdefault(spread(gradient), []).append(local(gradient))
    squares = [square_sum(tensors, where) for where, tensors in parts.items()]
    return torch.stack(squares).sum().sqrt() if squares else torch.zeros(())


def square_sum(tensors: list[Tensor], where: Spread) -> Tensor:
    mesh, dims = where
    total = torch.stack(torch._foreach_norm(tensors)).square().sum()
    if mesh is not None:
        for dim in dims:
            dist.all_reduce(total, group=mesh.get_group(dim))
    return total


def spread(gradient: Tensor) -> Spread:
    if not isinstance(gradient, DTensor):
        return None, ()
    if is_partial(gradient):
        raise UnsettledGradientError(f"a gradient of shape {tuple(gradient.shape)} is {gradient.placements}; call settle_gradients first")
    dims = (dim for dim, placement in enumerate(gradient.placements) if not placement.is_replicate())
    return gradient.device_mesh, tuple(dims)


def is_partial(gradient: Tensor | None) -> bool:
    return isinstance(gradient, DTensor) and any(placement.is_partial() for placement in gradient.placements)


def gradients_of(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
