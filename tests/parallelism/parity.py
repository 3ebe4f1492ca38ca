"""Train under any plan, on real ranks, for comparison with one process on the same global batches."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.parallelism import mesh
from paceline.parallelism.plan import Coordinates
from paceline.training.build import choices_of, make_ready
from paceline.training.elastic import first_assignment
from paceline.training.link import RankPlace
from paceline.training.optim.loss_scale import LossScale, Unscaled
from paceline.training.saving.shards import tensors_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import building, make_optimizer, new_state, rebuild_optimizer
from paceline.training.task import Batch, Loss, Task
from tests import parity_table
from tests.parity_table import largest_difference
from tests.ranks import run_ranks
from tests.release_only import AT_LENGTH

#: A difference grows from the first wrong step on: eight show it as well as the twenty of the published table.
STEPS = 20 if AT_LENGTH else 8
CPU = torch.device("cpu")
RELATIVE = 1e-5
#: Buffers of batch norm: with plain data parallelism each rank updates its own.
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


class NothingAsked:
    pause_wanted = checkpoint_wanted = leave_wanted = gradients_wanted = False
    outcome_bytes = None


@dataclass(frozen=True)
class Trained:
    losses: list[float]
    norms: list[float]
    evaluation: dict[str, float]
    parameters: dict[str, list[float]]  # and running statistics; whole; of a pipeline, those of this rank's stages
    skipped: list[int]  # steps whose update was
    scale: Unscaled  # after the last step


def tiny_task() -> dict[str, Any]:
    """A user's own, see below."""
    return {
        "name": "tiny-task",
        "entrypoint": "tests.parallelism.parity:make_task",
        "optimizer": {"kind": "adamw", "lr": 1e-2},
        "training": {"steps": STEPS, "global_batch_size": 8, "micro_batch_size": 2},
    }


class Odd(nn.Module):
    """Layers in a list, each with a bias of three; a vector that is not used and one that is frozen."""

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


def make_tied_task(spec: JobSpec) -> Task:
    """The first and a later block of a Sequential have one weight."""
    first, last = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)
    last.weight = first.weight
    return Task(nn.Sequential(first, nn.Tanh(), nn.Linear(3, 3), last, nn.Linear(3, 1)), Numbers(), squared_error, evaluation=Numbers())


def make_sharing_task(spec: JobSpec) -> Task:
    """Two blocks of a Sequential have one layer in common."""
    shared = nn.Linear(3, 3)
    blocks = [nn.Sequential(nn.Linear(3, 3), nn.Tanh(), shared) for _ in range(2)]
    return Task(nn.Sequential(*blocks, nn.Linear(3, 1)), Numbers(), squared_error, evaluation=Numbers())


def make_channels_last_task(spec: JobSpec) -> Task:
    """A convolution whose weight is stored channels last."""
    layers = [nn.Linear(3, 16), nn.Unflatten(1, (4, 2, 2)), nn.Conv2d(4, 3, 2), nn.Flatten(), nn.Linear(3, 1)]
    model = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Task(model, Numbers(), squared_error, evaluation=Numbers())


def train(
    world: RankPlace,
    document: dict[str, Any],
    least_in_unit: int = 1,
    steps: int = STEPS,
    frozen: tuple[str, ...] = (),
    scale: float | None = None,
) -> Trained:
    """Some steps, and an evaluation; by default each block is sharded by itself, however small. Parameters of the names in `frozen` are not
    trained. `scale`: that fp16's losses begin with, in the place of the usual one."""
    spec = JobSpec.model_validate(document)
    state = new_state(spec, CPU, env.cache_directory(), building(spec))
    for name in frozen:
        state.task.model.get_parameter(name).requires_grad_(False)
    state.set_optimizer(make_optimizer(spec, state.task))
    state.scale = state.scale if scale is None else LossScale(scale)
    sizes = spec.parallelism.degrees(world.world_size)
    group = join(world, GroupAborter(), mesh.axis_group_ranks(sizes))
    coordinates = Coordinates(sizes, group.rank)
    choices = dataclasses.replace(choices_of(spec), least_in_unit=least_in_unit)
    steps_from = make_ready(spec, state, group, coordinates, choices)
    rebuild_optimizer(state, spec)
    step_runner = steps_from(spec, first_assignment(derived.micro_batches(spec), coordinates, None))
    reports = [step_runner.run(NothingAsked()) for _ in range(steps)]
    evaluation = step_runner.evaluate()
    whole = {
        name: tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for name, tensor in tensors_of(state)["model"].items()
    }
    parameters = {name: tensor.flatten().tolist() for name, tensor in whole.items()}
    skipped = [report.step for report in reports if not report.applied]
    norms = [report.gradient_norm for report in reports]
    return Trained([report.loss for report in reports], norms, evaluation, parameters, skipped, state.scale)


#: The results of one process, by what it was asked: many plans are compared with them.
_alone: dict[str, Trained] = {}


def one_process(document: dict[str, Any], frozen: tuple[str, ...] = ()) -> Trained:
    asked = json.dumps([document, frozen], sort_keys=True)
    if asked not in _alone:
        (_alone[asked],) = run_ranks(train, 1, document, 1, STEPS, frozen)
    return _alone[asked]


def assert_parity(
    spec: dict[str, Any],
    world_size: int,
    plan: dict[str, Any],
    *,
    least_in_unit: int = 1,
    relative: float = RELATIVE,
    losses_only: bool = False,
    statistics: bool = True,
    frozen: tuple[str, ...] = (),
) -> None:
    """`spec` under `plan` on `world_size` ranks, beside one process; without `statistics`, running ones and what is evaluated with them."""
    alone = spec | {"parallelism": {"strategy": "single"}, "resources": {"nodes": 1}, "reproducible": False}
    expected = one_process(alone, frozen)
    together = spec | {"parallelism": plan, "resources": {"nodes": world_size}}
    ranks = run_ranks(train, world_size, together, least_in_unit, STEPS, frozen)
    assert {name for found in ranks for name in found.parameters} == set(expected.parameters)
    for found in ranks:
        assert found.losses == pytest.approx(expected.losses, rel=relative)
        if losses_only:
            continue
        assert found.norms == pytest.approx(expected.norms, rel=relative)
        if statistics:
            assert found.evaluation == pytest.approx(expected.evaluation, rel=relative)
        for name, values in found.parameters.items():
            if statistics or not name.endswith(STATISTICS):
                wanted = expected.parameters[name]
                assert values == pytest.approx(wanted, rel=relative, abs=relative * max(map(abs, wanted))), name
    publish(together, relative, expected, *ranks, losses_only=losses_only)


def publish(document: dict[str, Any], bound: float, expected: Trained, *ranks: Trained, losses_only: bool = False) -> None:
    found = ranks[0]
    losses = largest_difference(expected.losses, found.losses)
    if losses_only:
        parity_table.add(document, bound, losses)
        return
    trained = [(name, values) for each in ranks for name, values in each.parameters.items() if not name.endswith(STATISTICS)]
    parameters = max(largest_difference(expected.parameters[name], values) for name, values in trained)
    parity_table.add(document, bound, losses, largest_difference(expected.norms, found.norms), parameters)
