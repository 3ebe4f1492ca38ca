"""Steps of Paceline's jobs, with all that a rank records of them: the loops of `bare.py` are compared with these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch

from paceline.distributed.abort import GroupAborter
from paceline.training.build import build_generation
from paceline.training.link import RankPlace
from paceline.training.rank_folder import RankFolder
from paceline.training.reporting.agent_link import AgentLink
from paceline.training.reporting.telemetry import Telemetry
from paceline.training.spec.job import JobSpec
from paceline.training.state import StepReport, TrainState, new_state
from paceline.training.steps.stepping import StepRunner
from paceline.training.trainer import StepRequests
from scripts.bench.parallel.turns import Loop
from scripts.bench.parallel.workload import CPU, GLOBAL_BATCH, MODEL, spec_of

#: Makes a rank's loop; it joins the process group that the bare loops use too.
MakeJob = Callable[[RankPlace, Path, Path], Loop]


class Built(NamedTuple):
    """A job on one rank, about to take its first step."""

    state: TrainState
    step_runner: StepRunner
    telemetry: Telemetry
    requests: StepRequests

    def run_step(self) -> StepReport:
        """Run a step without recording it."""
        return self.step_runner.run(self.requests)

    def step(self) -> None:
        """Run a step, and record everything that a rank records of it."""
        self.telemetry.step(self.run_step())


def build(world: RankPlace, folder: Path, cache: Path, spec: JobSpec, device: torch.device = CPU) -> Built:
    """Build a job on this rank by the path that a real rank takes, from its spec on."""
    state, telemetry = new_state(spec, device, cache), telemetry_of(world, spec, folder)
    place = msgspec.structs.replace(world, checkpoint_directory=str(folder / "checkpoints"))
    generation = build_generation(spec, place, state, telemetry, GroupAborter())
    telemetry.joined(0, state.total_steps, state.task, state.feed.epoch_samples)
    return Built(state, generation.step_runner, telemetry, StepRequests(telemetry.link, generation.saves, generation.gradients))


def telemetry_of(world: RankPlace, spec: JobSpec, folder: Path) -> Telemetry:
    own = RankFolder.at(folder / str(world.rank))
    own.path.mkdir()
    return Telemetry(world, spec, own, AgentLink(str(own.path / "no-agent"), world))


def job(
    world: RankPlace, folder: Path, cache: Path, model: Mapping[str, Any] = MODEL, micro_batches: int | None = None, **parallelism: Any
) -> Loop:
    """Return the loop of a job in as many micro-batches as the bare loop's; by default each rank's share in one."""
    size = GLOBAL_BATCH // (micro_batches or world.world_size)
    return build(world, folder, cache, spec_of(model, world.world_size, size, parallelism=parallelism)).step
