"""Predict the time and the memory of a step of a plan: on stated devices and links, or on machines that were fitted to measurements. Pure.

The formulas are those of `step_time.py` and `memory.py`; this page says which machines they are asked about.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from paceline.parallelism.model_shape import ModelShape
from paceline.parallelism.planning.cost.devices import CatalogueDevice
from paceline.parallelism.planning.cost.links import CatalogueLink, link_named
from paceline.parallelism.planning.machines import Machines
from paceline.parallelism.planning.memory import RankMemory, TrainingSetup, memory
from paceline.parallelism.planning.step_time import StepTimeEstimate, step_time


@dataclass(frozen=True)
class Platform:
    """Machines of one kind: `slots_per_node` devices each, and the adapters that all of them share."""

    device: CatalogueDevice
    slots_per_node: int
    network: CatalogueLink | None = None  # None: not stated, so nothing is predicted across machines
    adapters: int = 1  # of a machine

    @property
    def within(self) -> CatalogueLink:
        return link_named(self.device.link)

    def machines(self, ranks: int, rate: float) -> Machines:
        """Return the machines that `ranks` ranks take. `rate`: floating-point operations per second of a device, as `device.rate` has them.

        Raises ValueError where ranks need several machines and the network between them is not stated.
        """
        here = min(ranks, self.slots_per_node)
        if ranks > here and self.network is None:
            raise ValueError(f"{ranks} ranks take several machines of {here}, and no network between them is stated; state one of links.py")
        within = self.within.link()
        return Machines(
            nodes=-(-ranks // here),
            slots_per_node=here,
            memory_bytes=self.device.memory_bytes,
            flops_per_second=rate,
            within=within,
            between=self.network.link(self.adapters) if self.network else within,
            memory_bytes_per_second=self.device.memory_rate,
            activation_bytes_per_second=self.device.memory_rate,
        )

    @property
    def words(self) -> str:
        beside = "" if self.network is None else f", {self.adapters} x {self.network.name} a machine"
        return f"{self.slots_per_node} x {self.device.name} a machine over {self.within.name}{beside}"


@dataclass(frozen=True)
class StepPrediction:
    """A predicted step. `memory` is counted when it is first asked for, since that takes longer than the time."""

    shape: ModelShape
    setup: TrainingSetup
    machines: Machines
    time: StepTimeEstimate

    @property
    def seconds(self) -> float:
        return self.time.total

    @cached_property
    def memory(self) -> RankMemory:
        return memory(self.shape, self.setup)

    @property
    def fits(self) -> bool:
        return self.memory.total <= self.machines.memory_bytes

    @property
    def split(self) -> dict[str, float]:
        """The seconds of the step by name; they add up to all of it. Parts that take no time are left out."""
        time = self.time
        parts = {
            "products": time.compute + time.recompute - time.memory,
            "memory traffic": time.memory,
            "bubble": time.bubble,
            **{f"exposed communication, {axis}": seconds for axis, seconds in time.by_axis.items()},
            "update": time.update,
            "overhead": time.overhead,
        }
        return {name: seconds for name, seconds in parts.items() if seconds}


def predict(shape: ModelShape, setup: TrainingSetup, machines: Machines) -> StepPrediction:
    """Predict a step of a model that is trained as `setup` says on machines of as many slots as it takes. Raises ValueError for others."""
    if setup.degrees.world_size != machines.world_size:
        raise ValueError(f"the plan takes {setup.degrees.world_size} ranks, but the machines have {machines.world_size} slots; use as many")
    return StepPrediction(shape, setup, machines, step_time(shape, setup, machines))
