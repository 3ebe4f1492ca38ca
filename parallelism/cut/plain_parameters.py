"""Styles for modules that compute on plain tensors, whatever they do inside: their parameters are DTensors, as all of a cut model are, and
plain for as long as their forward pass takes. torch's own styles have the module compute on DTensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle


class WholeParameters(ParallelStyle):
    """Every rank has the module's own parameters whole.

    `apart`: what comes in differs from rank to rank, as one rank's heads do, so that each finds a part of the gradients only, which
    `gradients.settle_gradients` adds up. Otherwise every rank finds all of them.
    """

    def __init__(self, *, apart: bool = False) -> None:
        super().__init__()
        self.apart = apart

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        distribute(module, device_mesh, Replicate())
        module.forward = OnPlainParameters(module, Partial() if self.apart else Replicate())
        return module


class VocabularyParallel(ParallelStyle):
    """An embedding whose rows are cut: each rank looks up what it has, and gets the sum of what all have found. Tokens are the same on all
    ranks, and each finds the gradients of its own rows. The number of rows must divide."""

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
    """The module's own parameters, which all ranks hold alike: nothing is sent."""
    for name, parameter in list(module.named_parameters(recurse=False)):
        tensor = distribute_tensor(parameter, mesh, [placement], src_data_rank=None)
        module.register_parameter(name, nn.Parameter(tensor, requires_grad=parameter.requires_grad))


class OnPlainParameters:
    """A module's forward pass, for which its own parameters are plain tensors; `gradients`: what this rank finds of theirs."""

    def __init__(self, module: nn.Module, gradients: Placement) -> None:
        self._module, self._forward, self._gradients = module, module.forward, gradients

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        held = self._module._parameters
        distributed: dict[str, Any] = {name: parameter for name, parameter in held.items() if isinstance(parameter, DTensor)}
        plain: Any = {name: parameter.to_local(grad_placements=[self._gradients]) for name, parameter in distributed.items()}
        held.update(plain)
        try:
            return self._forward(*inputs, **named)
        finally:
            held.update(distributed)


class OwnRows:
    def __init__(self, look_up: OnPlainParameters, rows: range, mesh: DeviceMesh) -> None:
        self._look_up, self._rows, self._mesh = look_up, rows, mesh

    def __call__(self, tokens: Tensor) -> Tensor:
        own = (tokens >= self._rows.start) & (tokens < self._rows.stop)
        found = self._look_up(torch.where(own, tokens - self._rows.start, 0)) * own.unsqueeze(-1)
        parts = DTensor.from_local(found, self._mesh, [Partial()], run_check=False)
        whole: Tensor = parts.redistribute(placements=[Replicate()]).to_local()
        return whole
