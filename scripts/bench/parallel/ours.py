"""Our jobs' steps, with all that a rank records of them: what the loops of `bare.py` are compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from distributed.abort import Fence
from scripts.bench.parallel.turns import Loop
from scripts.bench.parallel.workload import CPU, GLOBAL_BATCH, MODEL, spec_of
from training.build import build_generation
from training.link import RankFolder, World
from training.reporting.agent_link import AgentLink
from training.reporting.telemetry import Telemetry
from training.spec.job import JobSpec
from training.state import StepReport, TrainState, new_state
from training.steps.stepping import Stepping
from training.trainer import Told

#: Makes a rank's loop; it joins the process group that the bare loops use too.
MakeJob = Callable[[World, Path, Path], Loop]


class Built(NamedTuple):
    """A job on one rank, about to take its first step."""

    state: TrainState
    stepper: Stepping
    telemetry: Telemetry
    told: Told

    def untold_step(self) -> StepReport:
        return self.stepper.run(self.told)

    def step(self) -> None:
        """And everything recorded that a rank records of it."""
        self.telemetry.step(self.untold_step())


def build(world: World, folder: Path, cache: Path, spec: JobSpec, device: torch.device = CPU) -> Built:
    """A rank's own path, from its spec on."""
    state, telemetry = new_state(spec, device, cache), telemetry_of(world, spec, folder)
    place = msgspec.structs.replace(world, checkpoint_directory=str(folder / "checkpoints"))
    generation = build_generation(spec, place, state, telemetry, Fence())
    telemetry.joined(0, state.total_steps, state.task, state.feed.epoch_samples)
    return Built(state, generation.stepper, telemetry, Told(telemetry.link, generation.saves))


def telemetry_of(world: World, spec: JobSpec, folder: Path) -> Telemetry:
    own = RankFolder.at(folder / str(world.rank))
    own.path.mkdir()
    return Telemetry(world, spec, own, AgentLink(str(own.path / "no-agent"), world))


def job(
    world: World, folder: Path, cache: Path, model: Mapping[str, Any] = MODEL, micro_batches: int | None = None, **parallelism: Any
) -> Loop:
    """In as many micro-batches as the bare loop's; by default each rank's share in one."""
    size = GLOBAL_BATCH // (micro_batches or world.world_size)
    return build(world, folder, cache, spec_of(model, world.world_size, size, parallelism=parallelism)).step
