"""The same training under any plan, on real ranks, for comparison with one process on the same global batches."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from distributed.abort import Fence
from distributed.process_group import join
from parallelism import mesh
from parallelism.apply import parallelize
from parallelism.plan import even_deal
from tests.ranks import run_ranks
from training.build import choices_of
from training.link import World
from training.shards import tensors_of
from training.spec import JobSpec
from training.state import follow_model, new_state
from training.step import Stepper
from training.task import Batch, Loss, Task

STEPS = 20
CPU = torch.device("cpu")
RELATIVE = 1e-5
#: Of batch norm: plain data parallelism moves and counts them on each rank for itself.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class NothingAsked:
    pause_wanted = checkpoint_wanted = leave_wanted = False


@dataclass(frozen=True)
class Trained:
    losses: list[float]
    norms: list[float]
    evaluation: dict[str, float]
    parameters: dict[str, list[float]]  # and running statistics; whole


def tiny_task() -> dict[str, Any]:
    """A user's own, see below."""
    return {
        "name": "tiny-task",
        "entrypoint": "tests.parallelism.parity:make_task",
        "optimizer": {"kind": "adamw", "lr": 1e-2},
        "training": {"steps": STEPS, "global_batch_size": 8, "micro_batch_size": 2},
    }


class Odd(nn.Module):
    """Layers in a list, each with a bias of three; a vector that nobody uses and one that nobody trains."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))
        self.head = nn.Linear(3, 1)
        self.unused = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.full((3,), 0.5), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        for layer in self.layers:
            inputs = torch.tanh(layer(inputs)) * self.frozen
        output: Tensor = self.head(inputs)
        return output


class Numbers:
    def __len__(self) -> int:
        return 64

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        inputs = torch.stack([torch.sin(indices * factor) for factor in (1.0, 2.0, 3.0)], dim=1)
        return inputs, inputs.prod(dim=1)


def squared_error(model: nn.Module, batch: Batch) -> Loss:
    inputs, wanted = batch
    return (model(inputs).squeeze(1) - wanted).square().mean(), {}


def make_task(spec: JobSpec) -> Task:
    return Task(Odd(), Numbers(), squared_error, evaluation=Numbers())


def train(world: World, document: dict[str, Any], cache: str, least_in_unit: int = 1, steps: int = STEPS) -> Trained:
    """Some steps, and an evaluation; by default each block is sharded by itself, however small."""
    spec = JobSpec.model_validate(document)
    state = new_state(spec, CPU, Path(cache))
    sizes = spec.parallelism.degrees(world.world_size)
    group = join(world, Fence(), mesh.lines(sizes))
    choices = dataclasses.replace(choices_of(spec), least_in_unit=least_in_unit)
    wrapped = parallelize(state.task.model, sizes, CPU, group, reproducible=spec.is_reproducible, choices=choices)
    follow_model(state, spec)
    stepper = Stepper(spec, state, group, wrapped, even_deal(spec.micro_batches, group.world_size, group.rank))
    reports = [stepper.run(NothingAsked()) for _ in range(steps)]
    evaluation = stepper.evaluate()
    whole = {
        name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for name, tensor in tensors_of(state)["model"].items()
    }
    parameters = {name: tensor.flatten().tolist() for name, tensor in whole.items()}
    return Trained([report.loss for report in reports], [report.gradient_norm for report in reports], evaluation, parameters)


def assert_parity(
    spec: dict[str, Any],
    world_size: int,
    cache: Path,
    plan: dict[str, Any],
    *,
    least_in_unit: int = 1,
    relative: float = RELATIVE,
    losses_only: bool = False,
    statistics: bool = True,
) -> None:
    """`spec` under `plan` on `world_size` ranks, beside one process; without `statistics`, running ones and what is evaluated with them."""
    alone = spec | {"parallelism": {"strategy": "single"}, "resources": {"nodes": 1}, "reproducible": False}
    (expected,) = run_ranks(train, 1, alone, str(cache))
    together = spec | {"parallelism": plan, "resources": {"nodes": world_size}}
    for found in run_ranks(train, world_size, together, str(cache), least_in_unit):
        assert found.losses == pytest.approx(expected.losses, rel=relative)
        if losses_only:
            continue
        assert found.norms == pytest.approx(expected.norms, rel=relative)
        if statistics:
            assert found.evaluation == pytest.approx(expected.evaluation, rel=relative)
        for name, values in expected.parameters.items():
            if statistics or not name.endswith(STATISTICS):
                scale = max(map(abs, values))
                assert found.parameters[name] == pytest.approx(values, rel=relative, abs=relative * scale), name
