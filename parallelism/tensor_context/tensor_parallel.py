"""Tensor and sequence parallelism: matrices are sharded over ranks, and between them the sequence is (Shoeybi et al. 2019; Korthikanti et
al. 2022).

torch's styles are applied, and what they leave to their caller is done here: tied and frozen parameters, and sequences that do not
divide. After the last backward `gradients.reduce_partial_gradients` sums partial gradients. Parameters become DTensors, so that FSDP can
shard them further and a checkpoint knows which shard it has.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module
from torch.nn import functional as F

#: By module name, how the module is sharded.
TensorPlan = Mapping[str, ParallelStyle]


class IncompletePlanError(ValueError):
    """A plan does not fit the model."""


def apply_tensor_parallel(model: nn.Module, mesh: DeviceMesh, plan: TensorPlan) -> None:
    """Shard `model` in place over a 1-D `mesh`. Every rank must hold the same parameters; nothing is sent. Raises `IncompletePlanError`."""
    modules = dict(model.named_modules())
    if unknown := [name for name in plan if name not in modules]:
        raise IncompletePlanError(f"the model has no {unknown[0]}; its plan must name modules that are there")
    tied, frozen = list(tied_parameters(model)), frozen_parameters(model)
    parallelize_module(model, mesh, dict(plan), src_data_rank=None)
    for names in tied:
        tie(model, names)
    for name in frozen:  # torch's SequenceParallel would have them trained
        model.get_parameter(name).requires_grad_(False)
    refuse_plain_parameters(model)


def tied_parameters(model: nn.Module) -> Iterator[list[str]]:
    """Yield the names of each parameter that has more than one name."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return (group for group in names.values() if len(group) > 1)


def frozen_parameters(model: nn.Module) -> list[str]:
    """Return the names of parameters that are not trained."""
    return [name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad]


def tie(model: nn.Module, names: list[str]) -> None:
    """Make `names` one parameter again: torch's styles give each name a parameter of its own. Raises `IncompletePlanError`."""
    first, *others = names
    parameter = model.get_parameter(first)
    for name in others:
        style = placements(model.get_parameter(name))
        if style != placements(parameter):
            raise IncompletePlanError(
                f"{first} and {name} are one parameter, but sharded as {placements(parameter)} and {style}; shard them alike"
            )
        put_parameter(model, name, parameter)


@contextlib.contextmanager
def preserve_ties(model: nn.Module) -> Iterator[None]:
    """Tie parameters with several names again after the block, even if only some of the names got a new parameter in it.

    A pipeline stage that shares a parameter with another stage does not know it by the other stage's name.
    """
    before = [(names, model.get_parameter(names[0])) for names in tied_parameters(model)]
    yield
    for names, old in before:
        parameter = next((each for each in map(model.get_parameter, names) if each is not old), old)
        for name in names:
            put_parameter(model, name, parameter)


def put_parameter(model: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Set the parameter of a dotted name."""
    module, _, attribute = name.rpartition(".")
    model.get_submodule(module).register_parameter(attribute, parameter)


def placements(parameter: Tensor) -> tuple[Any, ...]:
    """Return the placements of a DTensor; a plain tensor has none."""
    return parameter.placements if isinstance(parameter, DTensor) else ()


def refuse_plain_parameters(model: nn.Module) -> None:
    """Raise `IncompletePlanError` if a trained parameter is not a DTensor.

    Hazard: such a parameter sees this rank's part of the sequence only, and no code would sum its gradients.
    """
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not isinstance(parameter, DTensor):
            raise IncompletePlanError(
                f"{name} is trained, but the plan does not say how it is sharded; name its module in the plan, or freeze it"
            )


class SequencePadding:
    """Lets a causal model whose sequence is sharded be called with sequences of any length.

    It pads tokens (batch, time) at the end, where no earlier position attends to them, and drops the logits (batch, time, vocabulary) of
    the padding, which so get no gradient.
    """

    def __init__(self, degree: int) -> None:
        self.degree = degree
        self.time = 0

    def attach(self, model: nn.Module) -> None:
        """Register hooks that pad the inputs of `model` and trim its logits."""
        model.register_forward_pre_hook(lambda _, inputs: (self.pad(*inputs),))
        model.register_forward_hook(lambda _, inputs, logits: self.trim(logits))

    def pad(self, tokens: Tensor) -> Tensor:
        """Pad tokens (batch, time) to a multiple of the degree."""
        self.time = tokens.shape[1]
        return F.pad(tokens, (0, -self.time % self.degree))

    def trim(self, logits: Tensor) -> Tensor:
        """Drop the logits of the tokens that the last `pad` added."""
        return logits if logits.shape[1] == self.time else logits[:, : self.time]


def gather_logits(head: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Tensor:
    """A forward hook of the head: in evaluation mode logits are whole plain tensors.

    In training mode the vocabulary stays sharded, for the loss (`loss_context`).
    """
    return logits if head.training else full_tensor(logits)


def full_tensor(tensor: Tensor) -> Tensor:
    """Return the whole value of a DTensor, such as logits or a loss, on every rank; a plain tensor is returned as it is.

    Collective over the tensor axis. Gradients flow through it.
    """
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
