"""Reduce gradients that ranks have computed separately, and clip by their norm over all axes.

Gradients may be plain tensors (equal on every rank) or DTensors on different meshes. torch's own norm takes one kind at a time, and takes
partial sums for final values. Every wait for other ranks is a wait in an `AxisGroup`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.torch_private import multiply_each
from paceline.parallelism.mesh import local_tensor

AxisGroups = Mapping[str, AxisGroup]
#: Along these axes ranks hold the same parameters, or the same shards of them, and have seen different positions or samples.
SUMMED_AXES = ("context", "replicate")
#: As in torch: no division by zero.
CLIP_EPSILON = 1e-6


class PartialGradientError(RuntimeError):
    """A gradient is a partial sum that its ranks have not reduced yet."""


@torch.no_grad()
def sum_gradients(parameters: Iterable[nn.Parameter], axis_groups: AxisGroups) -> None:
    """Sum the gradients of `parameters` over the context and the replicate axis, in place. Collective over the ranks of both."""
    parts = [local_tensor(gradient) for gradient in gradients_of(parameters)]
    for axis in SUMMED_AXES:
        if axis in axis_groups:
            all_reduce_flat(axis_groups[axis], parts)


@torch.no_grad()
def reduce_partial_gradients(parameters: Sequence[nn.Parameter], tensor: AxisGroup) -> None:
    """Sum over the tensor axis the gradients that are `Partial` DTensors. Collective.

    Those are the gradients of whole parameters, such as norms, of which each rank has seen its own positions only. Where the gradient of
    a sharded matrix came out whole, such as an embedding's, each rank keeps its own shard of it.
    """
    partial = [(parameter, parameter.grad) for parameter in parameters if is_partial(parameter.grad)]
    all_reduce_flat(tensor, [local_tensor(gradient) for _, gradient in partial if gradient is not None])
    for parameter, gradient in partial:
        assert isinstance(gradient, DTensor)
        parameter.grad = DTensor.from_local(gradient.to_local(), gradient.device_mesh, [Replicate()], run_check=False)
    for parameter in parameters:
        gradient = parameter.grad
        if isinstance(parameter, DTensor) and isinstance(gradient, DTensor) and gradient.placements != parameter.placements:
            parameter.grad = gradient.redistribute(placements=parameter.placements)


@torch.no_grad()
def all_reduce_flat(axis_group: AxisGroup, tensors: Sequence[Tensor]) -> None:
    """Sum `tensors` over the axis group, in place, in one flat message for each data type. Collective.

    Hazard: gloo adds memory in the order in which it lies. Row-major copies keep layouts that differ between ranks from mixing up
    elements.
    """
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        same = [tensor for tensor in tensors if tensor.dtype == dtype]
        flat = axis_group.sum(torch.cat([tensor.reshape(-1) for tensor in same]))
        for tensor, piece in zip(same, torch.split(flat, [tensor.numel() for tensor in same]), strict=True):
            tensor.copy_(piece.view(tensor.shape))


@torch.no_grad()
def global_norm(gradients: Iterable[Tensor], axis_groups: AxisGroups) -> Tensor:
    """Return the 2-norm of all gradients over all axes, as a plain scalar that is equal on every rank.

    Collective over the axes that shard a gradient: all their ranks call it with the same gradients in the same order. Raises
    `PartialGradientError`.
    """
    parts: dict[tuple[str, ...], list[Tensor]] = {}
    for gradient in gradients:
        parts.setdefault(sharded_axes(gradient), []).append(local_tensor(gradient))
    norms = [norm_over([axis_groups[axis] for axis in axes], tensors) for axes, tensors in parts.items()]
    return norms[0] if len(norms) == 1 else nn.utils.get_total_norm(norms)


def norm_over(axis_groups: Sequence[AxisGroup], tensors: list[Tensor]) -> Tensor:
    """Return the norm of `tensors`, whose shards are spread over `axis_groups`."""
    norm = nn.utils.get_total_norm(tensors)
    if not axis_groups:
        return norm  # not through its square, which would change the last bits
    square = norm.square()
    for axis_group in axis_groups:
        axis_group.sum(square)
    return square.sqrt()


@torch.no_grad()
def clip_by_norm(gradients: Sequence[Tensor], norm: Tensor, limit: float | None) -> None:
    """Scale the gradients in place so that their norm is at most `limit`; `norm` is their norm now. None: no limit."""
    if limit is not None and gradients:
        parts = [local_tensor(gradient) for gradient in gradients]
        multiply_each(parts, torch.clamp(limit / (norm + CLIP_EPSILON), max=1.0).to(parts[0].device))


def sharded_axes(gradient: Tensor) -> tuple[str, ...]:
    """Return the axes over which `gradient` is sharded. Raises `PartialGradientError` for a partial sum."""
    if not isinstance(gradient, DTensor):
        return ()
    if is_partial(gradient):
        raise PartialGradientError(
            f"a gradient of shape {tuple(gradient.shape)} is {gradient.placements}; call reduce_partial_gradients first"
        )
    names = gradient.device_mesh.mesh_dim_names or ()
    return tuple(axis for axis, placement in zip(names, gradient.placements, strict=True) if not placement.is_replicate())


def is_partial(gradient: Tensor | None) -> bool:
    """Whether `gradient` is a DTensor whose local tensors are partial sums."""
    return isinstance(gradient, DTensor) and any(placement.is_partial() for placement in gradient.placements)


def gradients_of(parameters: Iterable[nn.Parameter]) -> list[Tensor]:
    """Return the gradients of the parameters that have one."""
    return [parameter.grad for parameter in parameters if parameter.grad is not None]
