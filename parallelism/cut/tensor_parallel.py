"""Tensor and sequence parallelism: matrices are cut over ranks, and between them the sequence is (Shoeybi et al. 2019; Korthikanti et al. 2022).

torch's styles, with what they leave to their caller: tied and frozen parameters, and sequences that do not divide. After the last backward
`gradients.settle_gradients` adds up what they leave apart. Parameters become DTensors, so FSDP may cut them further and a checkpoint knows which part of them it has.
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

#: How each module is cut, by its name.
TensorPlan = Mapping[str, ParallelStyle]


class IncompletePlanError(ValueError):
    """A plan that does not fit the model."""


def apply_tensor_parallel(model: nn.Module, mesh: DeviceMesh, plan: TensorPlan) -> None:
    """Cut `model` in place over a 1-D `mesh`. Every rank must hold the same parameters; nothing is sent."""
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
    """Names of each parameter that has more than one."""
    names: dict[nn.Parameter, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return (group for group in names.values() if len(group) > 1)


def frozen_parameters(model: nn.Module) -> list[str]:
    return [name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad]


def tie(model: nn.Module, names: list[str]) -> None:
    """torch's styles give each name a parameter of its own: make them one again."""
    first, *others = names
    parameter = model.get_parameter(first)
    for name in others:
        cut_as = placements(model.get_parameter(name))
        if cut_as != placements(parameter):
            raise IncompletePlanError(
                f"{first} and {name} are one parameter, but cut as {placements(parameter)} and {cut_as}; cut them alike"
            )
        put_parameter(model, name, parameter)


@contextlib.contextmanager
def still_tied(model: nn.Module) -> Iterator[None]:
    """Parameters with several names are one afterwards too, though in here some of the names got another one: a stage of a pipeline that shares
    a parameter with another stage does not call it by that one's name."""
    before = [(names, model.get_parameter(names[0])) for names in tied_parameters(model)]
    yield
    for names, old in before:
        parameter = next((each for each in map(model.get_parameter, names) if each is not old), old)
        for name in names:
            put_parameter(model, name, parameter)


def put_parameter(model: nn.Module, name: str, parameter: nn.Parameter) -> None:
    module, _, attribute = name.rpartition(".")
    model.get_submodule(module).register_parameter(attribute, parameter)


def placements(parameter: Tensor) -> tuple[Any, ...]:
    return parameter.placements if isinstance(parameter, DTensor) else ()


def refuse_plain_parameters(model: nn.Module) -> None:
    """Hazard: a plain parameter sees this rank's part of the sequence only, and nobody would add its gradients up."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and not isinstance(parameter, DTensor):
            raise IncompletePlanError(
                f"{name} is trained, but the plan does not say how it is cut; name its module in the plan, or freeze it"
            )


class EvenSequences:
    """Lets a causal model whose sequence is cut be called with sequences of any length.

    It pads tokens (batch, time) behind their end, where no position looks at them, and drops the logits (batch, time, vocabulary) of
    the padding, which so gets no gradient.
    """

    def __init__(self, degree: int) -> None:
        self.degree = degree
        self.time = 0

    def attach(self, model: nn.Module) -> None:
        model.register_forward_pre_hook(lambda _, inputs: (self.pad(*inputs),))
        model.register_forward_hook(lambda _, inputs, logits: self.trim(logits))

    def pad(self, tokens: Tensor) -> Tensor:
        self.time = tokens.shape[1]
        return F.pad(tokens, (0, -self.time % self.degree))

    def trim(self, logits: Tensor) -> Tensor:
        """Of the tokens that were padded last."""
        return logits if logits.shape[1] == self.time else logits[:, : self.time]


def give_whole_logits(head: nn.Module, inputs: tuple[Tensor, ...], logits: Tensor) -> Tensor:
    """A hook of the module that makes them: in evaluation mode they come whole and plain. In training mode the vocabulary stays cut, for the loss
    (`loss_parallel`)."""
    return logits if head.training else plain(logits)


def plain(tensor: Tensor) -> Tensor:
    """The whole value on every rank: of logits, or of a loss. All ranks of the axis call it together; gradients flow."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
