"""A plain model as a chain of units, from which pipeline stages are made: the cost of each unit, and the tensors between units."""

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

from paceline.parallelism.tensor_context.sequence import SequenceShard

REPETITIONS = 3


class UnsplittableModelError(ValueError):
    """The model is not a chain of units that take one tensor and return one, or its loss needs it whole: it cannot be split into stages."""


@dataclass(frozen=True)
class Unit:
    """A piece of a model that is not split: one tensor in, one tensor out, with the samples of a micro-batch along dimension 0 of both."""

    modules: tuple[nn.Module, ...]  # modules of the model, whose parameters and buffers belong to this unit
    run: Callable[[Tensor], Tensor]

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the unit's modules."""
        return [parameter for module in self.modules for parameter in module.parameters()]

    @property
    def buffers(self) -> list[Tensor]:
        """The buffers of the unit's modules."""
        return [buffer for module in self.modules for buffer in module.buffers()]


class Chain(nn.Module):
    """Successive units as one module, which is called and may be sharded. Parameters keep the names that they have in the model."""

    def __init__(self, units: Sequence[Unit]) -> None:
        super().__init__()
        self.units = tuple(units)
        self.parts = nn.ModuleList(module for unit in units for module in unit.modules)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return what the last unit makes of the first one's `inputs`."""
        for unit in self.units:
            inputs = unit.run(inputs)
        return inputs


@dataclass(frozen=True)
class Boundary:
    """The tensor that a unit passes to the next one."""

    shape: tuple[int, ...]  # shape of one row
    dtype: torch.dtype
    has_gradient: bool
    rows: int = 1  # rows of one sample, along dimension 0

    def shape_of(self, samples: int) -> tuple[int, ...]:
        """Return the shape of the tensor for so many samples."""
        return (samples * self.rows, *self.shape)

    def empty(self, samples: int, device: torch.device) -> Tensor:
        """Return an uninitialized tensor for so many samples."""
        return torch.empty(self.shape_of(samples), dtype=self.dtype, device=device)

    def shard(self, shards: Sequence[SequenceShard]) -> Boundary:
        """Return the boundary of one rank's shard of the tensor, where `shards` are applied one after the other."""
        sample = self.empty(1, torch.device("meta"))
        for each in shards:
            sample = each.local(sample)
        return replace(self, shape=tuple(sample.shape[1:]), rows=len(sample))


def sequential_units(model: nn.Module) -> list[Unit]:
    """Return the children of an `nn.Sequential` as units. Raises `UnsplittableModelError` for any other model.

    A child without parameters belongs to the unit before it, so that no stage is without parameters; such children at the beginning
    belong to the first unit.
    """
    if not isinstance(model, nn.Sequential):
        raise UnsplittableModelError(
            f"{type(model).__name__} is no nn.Sequential, so a pipeline does not know its units; return them from Task.units, or train with ddp or fsdp"
        )
    runs: list[list[nn.Module]] = [[]]
    for child in model:
        if has_parameters(child) and any(map(has_parameters, runs[-1])):
            runs.append([])
        runs[-1].append(child)
    return [Unit(tuple(run), nn.Sequential(*run)) for run in runs]


def has_parameters(module: nn.Module) -> bool:
    """Whether `module` has any parameter."""
    return next(module.parameters(), None) is not None


def require_complete_units(model: nn.Module, units: Sequence[Unit]) -> None:
    """Raise `UnsplittableModelError` unless every parameter of `model` belongs to a unit."""
    owned = {id(parameter) for unit in units for parameter in unit.parameters}
    forgotten = [name for name, parameter in model.named_parameters() if id(parameter) not in owned]
    if forgotten:
        raise UnsplittableModelError(f"{', '.join(forgotten)} of {type(model).__name__} belong to no unit of its chain; put each into one")


def keep_only_units(model: nn.Module, units: Sequence[Unit], kept: Collection[Unit]) -> None:
    """Free the parameters and buffers of all units except `kept`. The model as a whole cannot be called afterwards.

    Names stay as they were, also of a tensor that a kept unit shares with others.
    """
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
    """Return (boundary after each unit, cost of each unit), by one forward pass over the micro-batch `inputs`.

    The cost: floating-point operations as torch counts them (FlopCounterMode), and one for each output element, so that units that do not
    multiply, such as an embedding, are not free. Raises `UnsplittableModelError`.
    """
    boundaries, costs, learns = [], [], False
    with preserve_state(model), autocast:
        for unit in units:
            with temporarily_on(unit, inputs.device), FlopCounterMode(display=False) as counter:
                inputs, rows = unit.run(inputs), len(inputs)
            require_rows(unit, inputs, rows)
            learns = learns or any(parameter.requires_grad for parameter in unit.parameters)
            boundaries.append(Boundary(tuple(inputs.shape[1:]), inputs.dtype, learns and inputs.is_floating_point()))
            costs.append(float(counter.get_total_flops() + inputs.numel()))
    return boundaries, costs


def require_rows(unit: Unit, output: Tensor, rows: int) -> None:
    """Raise `UnsplittableModelError` unless `output` is one tensor with `rows` samples along dimension 0."""
    names = " and ".join(type(module).__name__ for module in unit.modules)
    if not isinstance(output, Tensor):
        raise UnsplittableModelError(f"{names} gives {type(output).__name__}; a unit of a pipeline gives one tensor")
    if output.ndim == 0 or len(output) != rows:
        raise UnsplittableModelError(
            f"{names} makes {list(output.shape)} of {rows} samples; a unit of a pipeline keeps them along dimension 0"
        )


def measure(model: nn.Module, units: Sequence[Unit], inputs: Tensor, autocast: Callable[[], AbstractContextManager[object]]) -> list[float]:
    """Return the seconds of each unit's forward and backward pass over the micro-batch `inputs`: the median of REPETITIONS.

    These are times of this rank: all ranks must agree on one rank's.
    """
    costs = []
    with preserve_state(model):
        for unit in units:
            with temporarily_on(unit, inputs.device):
                timed = [time_unit(unit, inputs, autocast()) for _ in range(REPETITIONS)]
            costs.append(median(seconds for seconds, _ in timed))
            inputs = timed[-1][1]
    return costs


def time_unit(unit: Unit, inputs: Tensor, autocast: AbstractContextManager[object]) -> tuple[float, Tensor]:
    """Return (seconds, output) of one forward and backward pass of a unit."""
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
def temporarily_on(unit: Unit, device: torch.device) -> Iterator[None]:
    """Move the unit's parameters to `device` inside the block: the whole model may be too large for it."""
    home = [parameter.data for parameter in unit.parameters]
    for parameter in unit.parameters:
        parameter.data = parameter.data.to(device)
    yield
    for parameter, data in zip(unit.parameters, home, strict=True):
        parameter.data = data


def move_buffers(model: nn.Module, device: torch.device) -> None:
    """Move all buffers to `device`. They are small, and a unit may read some that belong to no unit."""
    for buffer in model.buffers():
        buffer.data = buffer.data.to(device)


def synchronize(device: torch.device) -> None:
    """Wait for the kernels of a GPU; do nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Restore buffers, gradients and the state of random numbers after the block."""
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
