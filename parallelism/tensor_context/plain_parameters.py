"""Parallel styles for modules that compute on plain tensors, whatever they do inside.

Their parameters are DTensors, as all parameters of a tensor-parallel model are, and are plain tensors during the module's forward pass.
With torch's own styles the module would compute on DTensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

from paceline.distributed.torch_private import own_parameters


class WholeParameters(ParallelStyle):
    """A style that keeps the module's own parameters whole on every rank.

    `partial_gradients`: inputs differ between ranks, as one rank's heads do, so that each rank computes a part of the gradients only, and
    `gradients.reduce_partial_gradients` sums them. Otherwise every rank computes the whole gradients.
    """

    def __init__(self, *, partial_gradients: bool = False) -> None:
        super().__init__()
        self.partial_gradients = partial_gradients

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        distribute(module, device_mesh, Replicate())
        module.forward = OnPlainParameters(module, Partial() if self.partial_gradients else Replicate())
        return module


class VocabularyParallel(ParallelStyle):
    """A style that shards an embedding by rows: each rank looks up the rows that it has, and the results are summed.

    Tokens are the same on all ranks, and each rank computes the gradients of its own rows. The number of rows must divide.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        embedding = module
        assert isinstance(embedding, nn.Embedding)
        rows = embedding.num_embeddings // device_mesh.size()
        first, unlearned = rows * device_mesh.get_local_rank(), embedding.padding_idx
        if unlearned is not None:  # a token whose row gets no gradient
            embedding.padding_idx = unlearned - first if first <= unlearned < first + rows else None
        distribute(module, device_mesh, Shard(0))
        module.forward = OwnRows(OnPlainParameters(module, Shard(0)), range(first, first + rows), device_mesh)
        return module


def distribute(module: nn.Module, mesh: DeviceMesh, placement: Placement) -> None:
    """Replace the module's own parameters, which all ranks hold alike, by DTensors. Nothing is sent."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        tensor = distribute_tensor(parameter, mesh, [placement], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(tensor, requires_grad=parameter.requires_grad))


class OnPlainParameters:
    """A module's forward pass in which its own parameters are plain tensors. `gradients`: the placement of what this rank computes of
    theirs.
    """

    def __init__(self, module: nn.Module, gradients: Placement) -> None:
        self._module, self._forward, self._gradients = module, module.forward, gradients

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        held = own_parameters(self._module)
        distributed: dict[str, Any] = {name: parameter for name, parameter in held.items() if isinstance(parameter, DTensor)}
        plain: Any = {name: parameter.to_local(grad_placements=[self._gradients]) for name, parameter in distributed.items()}
        held.update(plain)
        try:
            return self._forward(*inputs, **named)
        finally:
            held.update(distributed)


class OwnRows:
    """The forward pass of an embedding of which this rank has some rows."""

    def __init__(self, look_up: OnPlainParameters, rows: range, mesh: DeviceMesh) -> None:
        self._look_up, self._rows, self._mesh = look_up, rows, mesh

    def __call__(self, tokens: Tensor) -> Tensor:
        own = (tokens >= self._rows.start) & (tokens < self._rows.stop)
        found = self._look_up(torch.where(own, tokens - self._rows.start, 0)) * own.unsqueeze(-1)
        parts = DTensor.from_local(found, self._mesh, [Partial()], run_check=False)
        whole: Tensor = parts.redistribute(placements=[Replicate()]).to_local()
        return whole
