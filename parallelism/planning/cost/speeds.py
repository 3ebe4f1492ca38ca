"""The speeds of one kind of machines, apart from their number: what a fit finds, and where it begins. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from paceline.parallelism.model_shape import ModelShape, Precision
from paceline.parallelism.planning.cost.devices import device_named
from paceline.parallelism.planning.cost.links import link_named
from paceline.parallelism.planning.cost.predict import StepPrediction
from paceline.parallelism.planning.hardware_defaults import CPU_SLOTS, GPUS, HardwareDefaults
from paceline.parallelism.planning.machines import Machines
from paceline.parallelism.planning.memory import TrainingSetup
from paceline.parallelism.planning.step_time import step_time

#: Where a fit begins that has nothing better: ours of a small GPT on one core, and the launches of a GPU's step.
STEP_OVERHEAD_SECONDS = 2e-3
#: Likewise, of a layer that FSDP shards: ours took 1 ms, of which little is there where kernels are waited for.
GATHER_OVERHEAD_SECONDS = 1e-4


@dataclass(frozen=True)
class Speeds:
    """The speeds of one kind of machines, whatever their number."""

    flops_per_second: Mapping[Precision, float]
    machines: Machines  # the speeds of everything else

    def on(self, setup: TrainingSetup, ranks_by_node: Sequence[int] = ()) -> Machines:
        """Return machines for the ranks of `setup`, by default one machine that has them all."""
        shares = tuple(ranks_by_node) or (setup.degrees.world_size,)
        rate = self.flops_per_second[setup.precision]
        return replace(self.machines, nodes=len(shares), slots_per_node=max(shares), shares=shares, flops_per_second=rate)

    def predict(self, shape: ModelShape, setup: TrainingSetup, ranks_by_node: Sequence[int] = ()) -> StepPrediction:
        machines = self.on(setup, ranks_by_node)
        return StepPrediction(shape, setup, machines, step_time(shape, setup, machines))


def of_cpu_slots(precisions: Iterable[Precision], memory_bytes: int = 0) -> Speeds:
    """Return the speeds that are assumed of CPU slots."""
    return Speeds(
        dict.fromkeys(precisions, CPU_SLOTS.flops_per_second), _machines(CPU_SLOTS, memory_bytes, CPU_SLOTS.memory_bytes_per_second)
    )


def of_device(name: str, precisions: Iterable[Precision]) -> Speeds:
    """Return the speeds of a device of the catalogue, by its driver's name, over its usual link, and over the network that is assumed of GPUs.

    Raises UnknownDeviceError.
    """
    device = device_named(name)
    machines = replace(_machines(GPUS, device.memory_bytes, device.memory_rate), within=link_named(device.link).link())
    return Speeds({precision: device.rate(precision) for precision in precisions}, machines)


def _machines(defaults: HardwareDefaults, memory_bytes: int, memory_rate: float) -> Machines:
    return Machines(
        nodes=1,
        slots_per_node=1,
        memory_bytes=memory_bytes,
        flops_per_second=defaults.flops_per_second,
        within=defaults.within,
        between=defaults.between,
        overlaps=defaults.overlaps,
        memory_bytes_per_second=memory_rate,
        activation_bytes_per_second=memory_rate,
        step_overhead_seconds=STEP_OVERHEAD_SECONDS,
        tensor_overhead_seconds=defaults.tensor_overhead_seconds,
        gather_overhead_seconds=GATHER_OVERHEAD_SECONDS,
    )
