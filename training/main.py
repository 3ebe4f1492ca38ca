"""A rank's life, from the order its spawner forks it with to its last word."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
import torch

from distributed import env
from monitoring.files import write_durably
from training.build import build_generation
from training.failures import describe, exit_code_of, is_the_users
from training.link import RankFolder, RankOrder, Result, World
from training.preload import preload as preload  # called by the spawner, once, before it forks any rank
from training.spec import JobSpec
from training.state import TrainState, new_state
from training.telemetry import Telemetry
from training.trainer import train


@dataclass
class Attempt:
    """How far this rank came, whatever ends it."""

    state: TrainState | None = None
    telemetry: Telemetry | None = None

    @property
    def step(self) -> int:
        return self.state.step if self.state is not None else 0


def run_rank(order: RankOrder) -> int:
    """Train, leave a `Result` in the rank's folder, return the exit code. The caller exits without clean-up: that frees the peers."""
    folder, attempt, exit_code = RankFolder.at(Path(order.folder)), Attempt(), 0
    try:
        result = Result(outcome=run(order, folder, attempt), step=attempt.step)
    except BaseException as error:  # noqa: BLE001 - the border of the process: whatever it was becomes the report
        report = describe(error, order.world.rank, attempt.step)
        print(f"ERROR {report.message}" if is_the_users(report) else report.traceback, file=sys.stderr, flush=True)
        result, exit_code = Result(outcome="failed", step=attempt.step, failure=report), exit_code_of(error)
    if attempt.telemetry is not None:
        attempt.telemetry.close()
    write_durably(folder.result, msgspec.json.encode(result))
    return exit_code


def run(order: RankOrder, folder: RankFolder, attempt: Attempt) -> Literal["completed", "paused"]:
    world, spec = order.world, JobSpec.model_validate(order.spec)
    attempt.telemetry = Telemetry(world, spec, folder, order.agent_socket)
    env.enter(world, world.interface)
    torch.set_num_threads(env.intra_op_threads())
    attempt.state = new_state(spec, device_of(world), env.cache_directory())
    generation = build_generation(spec, world, attempt.state, attempt.telemetry)
    outcome = train(generation)
    generation.close()
    return outcome


def device_of(world: World) -> torch.device:
    if world.device == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", world.slot)
    torch.cuda.set_device(device)
    return device
