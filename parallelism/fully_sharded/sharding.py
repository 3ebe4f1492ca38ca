"""Fully sharded data parallelism: each rank holds a shard of every parameter, gradient and optimizer state (Rajbhandari et al. 2020,
ZeRO).

torch's `fully_shard` is applied over the shard axis. Whole parameters exist only while they are computed with, unit by unit, and
gradients are reduce-scattered in every backward pass. Every wait for other ranks is a wait in an `AxisGroup`. With a replicate axis
(HSDP) the shards of the gradients are summed over the replicas once in a step, in one flat message.

Units are runs of blocks with `ParallelizeOptions.least_in_unit` parameters; what is left over belongs to the root, and so do blocks that
share a parameter with others, which would each train a copy of it. A deferred model is built unit by unit in the host's memory, and only
this rank's shard of each unit is kept and moved to the device, so that the whole model exists nowhere. A model that was built whole, as a
user's own is, must fit the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, OffloadPolicy, fully_shard

from paceline.distributed.axis_groups import AxisGroup
from paceline.distributed.process_group import Group
from paceline.distributed.torch_private import AllGather, DefaultAllocMixin, ReduceScatter
from paceline.parallelism.blocks import self_contained, units
from paceline.parallelism.communication.reducers import Reducer
from paceline.parallelism.deferred import materialize
from paceline.parallelism.options import ParallelizeOptions
from paceline.parallelism.own_gradients import show_gradients
from paceline.parallelism.precision import parameter_type
from paceline.parallelism.tensor_context.shard_model import CannotShardError, loss_context
from paceline.parallelism.wrapped import AxisParallelModel, LocalBatch


class FullySharded(AxisParallelModel):
    """A model that is sharded already (`shard_in_units`). See `Wrapped`."""

    has_collective_forward = True

    def __init__(self, model: nn.Module, group: Group, local_batch: LocalBatch | None, reducer: Reducer) -> None:
        super().__init__(model, group, local_batch)
        self.module, self._reducer = model, reducer

    def accumulate(self, index: int, *, final: bool) -> AbstractContextManager[object]:
        return loss_context(self.group.axis_groups)

    def finish_step(self) -> float:
        """Sum gradients over the replicas and the context ranks. Backward has summed them over the shards and the tensor axis."""
        show_gradients(self.observe_gradient, self.module.parameters())
        mark = self.group.exposure.mark()
        self._reducer.sum(self.module.parameters())
        return self.group.exposure.since(mark)


def shard_in_units(
    root: nn.Module, blocks: Sequence[nn.Module], mesh: DeviceMesh, device: torch.device, axis_group: AxisGroup, choices: ParallelizeOptions
) -> None:
    """Shard `root` in place, unit by unit: its parameters are DTensors afterwards, and the optimizer must be made of those.

    `mesh`: the shard axis of the mesh over which the model may be sharded by other axes already. `axis_group`: its ranks. Only calls of
    `root` itself gather parameters. Raises `CannotShardError`.
    """
    require_dimensions(root)
    for parameter in root.parameters():
        if not parameter.is_contiguous():  # stored channels last, as some models of images are
            parameter.data = parameter.data.contiguous()
    parts: list[nn.Module | list[nn.Module]] = [*units(self_contained(blocks, root), choices.least_in_unit), root]
    for part in parts:
        materialize(root, part if isinstance(part, list) else [part])
        fully_shard(
            part,
            mesh=mesh,
            # None: only the root's own parameters stay whole, which backward needs at once.
            reshard_after_forward=None if choices.reshard_after_forward else False,
            mp_policy=mixed_precision(choices, root),
            offload_policy=offload_policy(choices, device),
        )
    for module in root.modules():
        if isinstance(module, FSDPModule):
            use_axis_group(module, axis_group)


def require_dimensions(root: nn.Module) -> None:
    """Raise `CannotShardError` if a parameter is a scalar, of which no shards can be made."""
    for name, parameter in root.named_parameters():
        if parameter.ndim == 0:
            raise CannotShardError(
                f"{name} is a scalar, which cannot be sharded: make it a parameter of one element, as torch.ones(1) is, or train with ddp"
            )


def mixed_precision(choices: ParallelizeOptions, model: nn.Module) -> MixedPrecisionPolicy:
    """Return the policy that sums gradients in fp32 whatever they were computed in. Inputs are cast by autocast, operation by operation."""
    gathered_as = parameter_type(choices.precision, model)
    return MixedPrecisionPolicy(gathered_as, torch.float32 if gathered_as else None, cast_forward_inputs=False)


def offload_policy(choices: ParallelizeOptions, device: torch.device) -> OffloadPolicy:
    """Return the policy that keeps shards in the host's memory, if `choices` ask for it."""
    return CPUOffloadPolicy(pin_memory=device.type == "cuda") if choices.cpu_offload else OffloadPolicy()


def use_axis_group(module: FSDPModule, axis_group: AxisGroup) -> None:
    """Make an FSDP module communicate through `axis_group`, and sum gradients without dividing: losses are divided for the global batch
    already.

    A parameter that this rank did not use counts as zero, or the other ranks would wait for its gradient.
    """
    module.set_custom_all_gather(AxisAllGather(axis_group))
    module.set_custom_reduce_scatter(AxisReduceScatter(axis_group))
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
    module.set_reduce_scatter_unused_params(True, recurse=False)


class AxisAllGather(DefaultAllocMixin, AllGather):
    """FSDP's all-gather through an `AxisGroup`."""

    def __init__(self, axis_group: AxisGroup) -> None:
        self._axis_group = axis_group

    def __call__(self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False) -> dist.Work | None:
        self._axis_group.all_gather(output_tensor, input_tensor)
        return None


class AxisReduceScatter(DefaultAllocMixin, ReduceScatter):
    """FSDP's reduce-scatter through an `AxisGroup`."""

    def __init__(self, axis_group: AxisGroup) -> None:
        self._axis_group = axis_group

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: object, async_op: bool = False
    ) -> dist.Work | None:
        """Reduce-scatter a sum; `op` is ignored, since FSDP is configured to ask for sums only."""
        self._axis_group.reduce_scatter(output_tensor, input_tensor)
        return None
