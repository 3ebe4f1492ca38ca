"""A plain model as a chain of units, the pieces that a pipeline's stages are made of: what each costs, and what goes from one to the next."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from statistics import median

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from parallelism.cut.sequence import Cut

REPETITIONS = 3


class UncuttableModelError(ValueError):
    """A model that is no chain of units which take one tensor and give one."""


@dataclass(frozen=True)
class Unit:
    """A piece of a model that is not cut: one tensor in, one tensor out, the samples of a micro-batch along dimension 0 of both."""

    modules: tuple[nn.Module, ...]  # of the model; their parameters and buffers are this unit's
    run: Callable[[Tensor], Tensor]

    @property
    def parameters(self) -> list[nn.Parameter]:
        return [parameter for module in self.modules for parameter in module.parameters()]

    @property
    def buffers(self) -> list[Tensor]:
        return [buffer for module in self.modules for buffer in module.buffers()]


class Chain(nn.Module):
    """Units one after the other, as one module: what is called, and may be sharded. Their names are those of the model."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__()
        self.units = tuple(units)
        self.parts = nn.ModuleList(module for unit in units for module in unit.modules)

    def forward(self, inputs: Tensor) -> Tensor:
        for unit in self.units:
            inputs = unit.run(inputs)
        return inputs


@dataclass(frozen=True)
class Boundary:
    """What a unit gives to the next one."""

    shape: tuple[int, ...]  # of one row
    dtype: torch.dtype
    has_gradient: bool
    rows: int = 1  # of one sample, along dimension 0

    def shape_of(self, samples: int) -> tuple[int, ...]:
        return (samples * self.rows, *self.shape)

    def empty(self, samples: int, device: torch.device) -> Tensor:
        return torch.empty(self.shape_of(samples), dtype=self.dtype, device=device)

    def part(self, cuts: Sequence[Cut]) -> Boundary:
        """What a rank has of it where the model is cut like this, one cut after the other."""
        sample = self.empty(1, torch.device("meta"))
        for cut in cuts:
            sample = cut.own(sample)
        return replace(self, shape=tuple(sample.shape[1:]), rows=len(sample))


def sequential_units(model: nn.Module) -> list[Unit]:
    """Of a model that is an `nn.Sequential`: its children. One without parameters goes with the one before, so that no stage has nothing to learn;
    the first such ones with what follows."""
    if not isinstance(model, nn.Sequential):
        raise UncuttableModelError(
            f"{type(model).__name__} is no nn.Sequential, so a pipeline needs to be told its units; train it with ddp or fsdp"
        )
    runs: list[list[nn.Module]] = [[]]
    for child in model:
        if has_parameters(child) and any(map(has_parameters, runs[-1])):
            runs.append([])
        runs[-1].append(child)
    return [Unit(tuple(run), nn.Sequential(*run)) for run in runs]


def has_parameters(module: nn.Module) -> bool:
    return next(module.parameters(), None) is not None


def require_whole(model: nn.Module, units: Sequence[Unit]) -> None:
    """Every parameter belongs to some unit."""
    owned = {id(parameter) for unit in units for parameter in unit.parameters}
    forgotten = [name for name, parameter in model.named_parameters() if id(parameter) not in owned]
    if forgotten:
        raise UncuttableModelError(f"{', '.join(forgotten)} of {type(model).__name__} belong to no unit of its chain; put each into one")


def keep_only(model: nn.Module, units: Sequence[Unit], kept: Collection[Unit]) -> None:
    """Free the parameters and buffers of all other units. Names stay as they were, also of a tensor that a kept unit shares with others;
    the model as a whole cannot be called any more."""
    own = {id(tensor) for unit in kept for tensor in [*unit.parameters, *unit.buffers]}
    others = {id(tensor) for unit in units for tensor in [*unit.parameters, *unit.buffers]} - own
    for module in model.modules():
        for name, tensor in [*module.named_parameters(recurse=False, remove_duplicate=False), *module.named_buffers(recurse=False)]:
            if id(tensor) in others:
                setattr(module, name, None)


@torch.no_grad()
def trace(
    model: nn.Module, units: Sequence[Unit], inputs: Tensor, autocast: AbstractContextManager[object]
) -> tuple[list[Boundary], list[float]]:
    """(what each unit gives, what it costs) by one forward pass over the micro-batch `inputs`.

    The cost: multiplications and additions as torch counts them (FlopCounterMode), and one for each number that is put out, so that what does not
    multiply, such as an embedding, is not free.
    """
    boundaries, costs, learns = [], [], False
    with as_it_was(model), autocast:
        for unit in units:
            with visiting(unit, inputs.device), FlopCounterMode(display=False) as counter:
                inputs, rows = unit.run(inputs), len(inputs)
            require_rows(unit, inputs, rows)
            learns = learns or any(parameter.requires_grad for parameter in unit.parameters)
            boundaries.append(Boundary(tuple(inputs.shape[1:]), inputs.dtype, learns and inputs.is_floating_point()))
            costs.append(float(counter.get_total_flops() + inputs.numel()))
    return boundaries, costs


def require_rows(unit: Unit, output: Tensor, rows: int) -> None:
    names = " and ".join(type(module).__name__ for module in unit.modules)
    if not isinstance(output, Tensor):
        raise UncuttableModelError(f"{names} gives {type(output).__name__}; a unit of a pipeline gives one tensor")
    if output.ndim == 0 or len(output) != rows:
        raise UncuttableModelError(
            f"{names} makes {list(output.shape)} of {rows} samples; a unit of a pipeline keeps them along dimension 0"
        )


def measure(model: nn.Module, units: Sequence[Unit], inputs: Tensor, autocast: Callable[[], AbstractContextManager[object]]) -> list[float]:
    """Seconds of each unit's forward and backward pass over the micro-batch `inputs`: the median of REPETITIONS. On this rank: agree on one."""
    costs = []
    with as_it_was(model):
        for unit in units:
            with visiting(unit, inputs.device):
                timed = [time_unit(unit, inputs, autocast()) for _ in range(REPETITIONS)]
            costs.append(median(seconds for seconds, _ in timed))
            inputs = timed[-1][1]
    return costs


def time_unit(unit: Unit, inputs: Tensor, autocast: AbstractContextManager[object]) -> tuple[float, Tensor]:
    """(seconds, output)"""
    inputs = inputs.detach().requires_grad_(inputs.is_floating_point())
    synchronize(inputs.device)
    started = time.perf_counter()
    with torch.enable_grad(), autocast:
        output = unit.run(inputs)
    if output.requires_grad:
        torch.autograd.backward(output, torch.ones_like(output))
    synchronize(inputs.device)
    return time.perf_counter() - started, output.detach()


@contextlib.contextmanager
def visiting(unit: Unit, device: torch.device) -> Iterator[None]:
    """Its parameters are on `device` meanwhile: all of a model may be too large for it."""
    home = [parameter.data for parameter in unit.parameters]
    for parameter in unit.parameters:
        parameter.data = parameter.data.to(device)
    yield
    for parameter, data in zip(unit.parameters, home, strict=True):
        parameter.data = data


def settle_buffers_on(model: nn.Module, device: torch.device) -> None:
    """They are small, and units may read some that belong to none of them."""
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def as_it_was(model: nn.Module) -> Iterator[None]:
    """Buffers, gradients and the state of random numbers are afterwards what they were."""
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    for parameter, _ in gradients:
        parameter.grad = None
    cuda = {parameter.device for parameter, _ in gradients if parameter.device.type == "cuda"}
    with torch.random.fork_rng(devices=list(cuda)):
        yield
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    for parameter, gradient in gradients:
        parameter.grad = gradient
