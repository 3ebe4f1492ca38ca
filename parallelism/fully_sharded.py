"""Fully sharded data parallelism: each rank holds a part of every parameter, gradient and optimizer state (Rajbhandari et al. 2020, ZeRO).

Torch's `fully_shard` over the shard axis. Whole parameters exist while they are computed with, unit by unit, and gradients are added up and cut
again in every backward pass. All that waits for other ranks waits in our `Line`s. With a replicate axis (HSDP) the parts of the gradients
are added up over the replicas, once in a step, in one flat message.

Units are runs of blocks with `Choices.least_in_unit` parameters; what is left over belongs to the root. A model that was `deferred` is built
unit by unit in the host's memory, and only this rank's part of each is kept and goes to the device: whole it is nowhere. One that came
whole, as a user's own does, must fit the host.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllocMixin

from distributed.lines import Line
from distributed.process_group import Group
from parallelism.blocks import units
from parallelism.cut.cut_model import around_loss
from parallelism.data_parallel import AlongLines, OwnPart
from parallelism.deferred import materialize
from parallelism.gradients import sum_gradients
from parallelism.plan import Choices
from parallelism.precision import parameter_type


class FullySharded(AlongLines):
    """See `Wrapped`; of a model that is sharded already (`shard_in_units`)."""

    in_lockstep = True

    def __init__(self, model: nn.Module, group: Group, own_part: OwnPart | None) -> None:
        super().__init__(model, group, own_part)
        self.module = model

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return around_loss(self.group.lines)

    def finish_step(self) -> float:
        """Over the shards they are global since backward, and settled over the tensor axis."""
        started = time.perf_counter()
        sum_gradients(self.module.parameters(), self.group.lines)
        return time.perf_counter() - started


def shard_in_units(
    root: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, device: torch.device, line: Line, choices: Choices
) -> None:
    """In place: parameters are DTensors from now on, and an optimizer must be made of those. `mesh`: the line of the shard axis, of the mesh over
    which the model may be cut already; `line`: its ranks. Only calls of `root` itself put parameters together."""
    parts: list[nn.Module | list[nn.Module]] = [*units(blocks, choices.least_in_unit), root]
    for part in parts:
        materialize(root, part if isinstance(part, list) else [part])
        fully_shard(
            part,
            mesh=mesh,
            # None: only what is left to the root stays whole, which backward needs at once.
            reshard_after_forward=None if choices.reshard_after_forward else False,
            mp_policy=mixed_precision(choices, root),
            offload_policy=offload_policy(choices, device),
        )
    for module in root.modules():
        if isinstance(module, FSDPModule):
            speak_along(module, line)


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
