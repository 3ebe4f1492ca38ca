"""Fully sharded data parallelism: each rank holds a part of every parameter, gradient and optimizer state (Rajbhandari et al. 2020, ZeRO).

Torch's `fully_shard` over the shard axis. Whole parameters exist while they are computed with, unit by unit, and gradients are added up and cut
again in every backward pass. All that waits for other ranks waits in our `Line`s. With a replicate axis (HSDP) the parts of the gradients
are added up over the replicas, once in a step, in one flat message.

Units are runs of blocks with `Choices.least_in_unit` parameters; what is left over belongs to the root. A model is built whole in the host's
memory on every rank, and only its part goes to the device, unit by unit: it may be too large for a device, not for the host.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllocMixin

from distributed.lines import Line
from distributed.process_group import Group
from parallelism.blocks import units
from parallelism.data_parallel import Sums, average_buffers
from parallelism.mesh import device_mesh, local_part
from parallelism.plan import Choices, Deal, Degrees
from parallelism.precision import parameter_type


class FullySharded:
    """See `Wrapped`. `model` is changed in place: its parameters are DTensors from now on, and an optimizer must be made of those."""

    in_lockstep = True

    def __init__(
        self,
        model: nn.Module,
        blocks: Sequence[nn.Module],
        degrees: Degrees,
        device: torch.device,
        group: Group,
        choices: Choices,
    ) -> None:
        self.module, self._group = model, group
        self._shards, self._replicas = group.lines["shard"], group.lines.get("replicate")
        mesh = device_mesh(degrees, group, device)["shard"]
        parts: list[nn.Module | list[nn.Module]] = [*units(blocks, choices.least_in_unit), model]
        for part in parts:
            fully_shard(
                part,
                mesh=mesh,
                # None: only what is left to the root stays whole, which backward needs at once.
                reshard_after_forward=None if choices.reshard_after_forward else False,
                mp_policy=mixed_precision(choices, model),
                offload_policy=offload_policy(choices, device),
            )
        for module in model.modules():
            if isinstance(module, FSDPModule):
                speak_along(module, self._shards)
        self._waited_before = 0.0

    def begin_step(self, deal: Deal, sums: Sums) -> None:
        """Gradients are added up where they are, cut: nothing of a step that breaks off can be kept."""
        self.waited()  # forget what evaluation and clipping have waited

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return contextlib.nullcontext()

    def waited(self) -> float:
        before, self._waited_before = self._waited_before, self._shards.waited
        return self._waited_before - before

    def finish_step(self) -> float:
        """Over the shards they are global since backward."""
        started = time.perf_counter()
        if self._replicas is not None:
            add_up(self._replicas, [local_part(p.grad) for p in self.module.parameters() if p.grad is not None])
        return time.perf_counter() - started

    def whole_norm(self, norm: Tensor) -> Tensor:
        return self._shards.sum(norm.square()).sqrt()

    def settle_buffers(self) -> None:
        average_buffers(self.module, self._group)


def mixed_precision(choices: Choices, model: nn.Module) -> MixedPrecisionPolicy:
    """Gradients are added up in fp32 whatever they were computed in. Inputs are cast by autocast, operation by operation."""
    gathered_as = parameter_type(choices.precision, model)
    return MixedPrecisionPolicy(gathered_as, torch.float32 if gathered_as else None, cast_forward_inputs=False)


def offload_policy(choices: Choices, device: torch.device) -> OffloadPolicy:
    return CPUOffloadPolicy(pin_memory=device.type == "cuda") if choices.cpu_offload else OffloadPolicy()


def speak_along(module: FSDPModule, line: Line) -> None:
    """Losses are divided for the global batch already, so that gradients are only added up. What a rank did not use counts as zero, or
    the others would wait for it."""
    module.set_custom_all_gather(GatherAlong(line))
    module.set_custom_reduce_scatter(ScatterSumAlong(line))
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
    module.set_reduce_scatter_unused_params(True, recurse=False)


class GatherAlong(DefaultAllocMixin, AllGather):
    def __init__(self, line: Line) -> None:
        self._line = line

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False) -> dist.Work | None:
        self._line.gather(output_tensor, input_tensor)
        return None


class ScatterSumAlong(DefaultAllocMixin, ReduceScatter):
    def __init__(self, line: Line) -> None:
        self._line = line

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: object, async_op: bool = False
    ) -> dist.Work | None:
        """`op` is a sum: nothing else is ever asked for."""
        self._line.scatter_sum(output_tensor, input_tensor)
        return None


@torch.no_grad()
def add_up(line: Line, tensors: Sequence[Tensor]) -> None:
    """Of all ranks in the line, in place, in one message."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    line.sum(flat)
    for tensor, piece in zip(tensors, torch.split(flat, [tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(piece.view(tensor.shape))
