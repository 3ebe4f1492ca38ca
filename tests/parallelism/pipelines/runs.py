"""Train in one process and in pipelines, for tests to compare."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.process_group import Group
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism.mesh import axis_group_ranks
from paceline.parallelism.pipelines.chain import Unit, sequential_units
from paceline.parallelism.pipelines.pipelined import BubbleTime, PipelinePosition, pipeline
from paceline.parallelism.pipelines.schedules import ScheduleName
from paceline.parallelism.plan import Degrees, assign_evenly
from paceline.parallelism.precision import autocast
from paceline.training.builtin import next_token_loss
from paceline.training.link import RankPlace
from paceline.training.models.gpt import model as gpt
from paceline.training.models.gpt.config import GptModel
from paceline.training.models.gpt.stages import units as gpt_units
from paceline.training.models.mlp import model as mlp
from paceline.training.models.mlp.config import MlpModel
from paceline.training.models.mlp.stages import units as mlp_units
from paceline.training.models.resnet import model as resnet
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.models.resnet.stages import units as resnet_units
from paceline.training.optim.optimizers import clip_gradients
from paceline.training.state import seed_everything
from tests.parallelism.parity import STEPS

CPU = torch.device("cpu")
CONTEXT = 8
CLIP = 0.5  # often below the norm


@dataclass(frozen=True)
class Case:
    schedule: ScheduleName = "1f1b"
    chunks: int = 1
    replicas: int = 1
    model: str = "gpt"
    samples: int = 8
    micro_batch: int = 2
    steps: int = STEPS
    measured: bool = False
    precision: Literal["fp32", "bf16"] = "fp32"

    @property
    def micro_batches(self) -> int:
        return -(-self.samples // self.micro_batch)


class Run(NamedTuple):
    """The results of one process or one rank; tensors as lists, by their names in the whole model."""

    losses: list[float]
    norms: list[float]
    state: dict[str, list[float]]
    held_out: float
    bubble: BubbleTime | None = None


def make(case: Case) -> tuple[nn.Module, list[Unit]]:
    torch.manual_seed(0)
    built, units = BUILDERS[case.model]()
    return built, units


def make_gpt(**changes: Any) -> tuple[nn.Module, list[Unit]]:
    fields = {"layers": 6, "heads": 2, "dim": 16, "context": CONTEXT, "vocab_size": 32, "dropout": 0.1} | changes
    model = gpt.build(GptModel(**fields))
    return model, gpt_units(model)


def make_frozen() -> tuple[nn.Module, list[Unit]]:
    """Nothing is trained in the first third, and one matrix is frozen further behind."""
    model, units = make_gpt(tied_embeddings=False)
    for unit in units[:3]:
        for parameter in unit.parameters:
            parameter.requires_grad_(False)
    units[5].parameters[1].requires_grad_(False)
    return model, units


def make_normed() -> tuple[nn.Module, list[Unit]]:
    """A model with running statistics. A bias before them would have no gradient but noise, which AdamW makes large."""
    blocks = [nn.Sequential(nn.Linear(16, 16, bias=False), nn.BatchNorm1d(16), nn.Tanh()) for _ in range(6)]
    model = nn.Sequential(nn.Flatten(), nn.Linear(CONTEXT + 1, 16, bias=False), *blocks, nn.Linear(16, 8))
    return model, sequential_units(model)


def make_mlp() -> tuple[nn.Module, list[Unit]]:
    model = mlp.build(MlpModel(hidden=(16, 16, 16), dropout=0.2), CONTEXT + 1, 8)
    return model, mlp_units(model)


def make_resnet() -> tuple[nn.Module, list[Unit]]:
    model = resnet.build(ResnetModel(depth=8, width=4))
    return model, resnet_units(model)


BUILDERS: dict[str, Callable[[], tuple[nn.Module, list[Unit]]]] = {
    "gpt": make_gpt,
    "untied": lambda: make_gpt(tied_embeddings=False, dropout=0.0),
    "frozen": make_frozen,
    "normed": make_normed,
    "mlp": make_mlp,
    "mixed": make_mlp,
    "resnet": make_resnet,
}


class Step:
    """`Work` of a step (from 1): made-up samples, every randomness a function of (step, micro-batch)."""

    scale = 1.0

    def __init__(self, case: Case, step: int) -> None:
        self.case, self.step = case, step

    def rows(self, index: int) -> int:
        return min(self.case.micro_batch, self.case.samples - index * self.case.micro_batch)

    def batch(self, index: int) -> Tensor:
        generator = seed_everything(CPU, 7, self.step, index + 1)
        if self.case.model == "resnet":
            return torch.randn(self.rows(index), 3, 32, 32, generator=generator)
        return torch.randint(0, 32, (self.rows(index), CONTEXT + 1), generator=generator)

    def loss(self, model: nn.Module, index: int, batch: Tensor) -> Tensor:
        if self.case.model == "mixed":
            return mixed_loss(model, batch.float()) * (self.rows(index) / self.case.samples)
        if batch.is_floating_point() or self.case.model in ("normed", "mlp"):
            loss: Tensor = model(batch.float()).square().mean()
        else:
            loss, _ = next_token_loss(model, (batch,))
        return loss * (self.rows(index) / self.case.samples)

    def autocast(self) -> AbstractContextManager[object]:
        return autocast(self.case.precision, CPU)


def mixed_loss(model: nn.Module, samples: Tensor) -> Tensor:
    """A loss that draws from every generator before it calls the model, and after that; in training only, as mixup does."""
    if not model.training:
        return model(samples).square().mean()  # type: ignore[no-any-return]
    order, share = torch.randperm(len(samples)), random.random() * np.random.rand()
    outputs = model(share * samples + (1 - share) * samples[order])
    noise = torch.randn_like(outputs) * np.random.rand()
    return (outputs + noise - samples[order, :1]).square().mean()  # type: ignore[no-any-return]


def make_optimizer(parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW([parameter for parameter in parameters if parameter.requires_grad], lr=1e-3, weight_decay=0.1)


def one_process(case: Case) -> Run:
    """Train in one process, without a pipeline: all pipelines are compared with it."""
    return _one_process(replace(case, schedule="1f1b", chunks=1, replicas=1, measured=False))


@functools.lru_cache
def _one_process(case: Case) -> Run:
    model, _ = make(case)
    optimizer, losses, norms = make_optimizer(list(model.parameters())), [], []
    for step in range(1, case.steps + 1):
        work, total = Step(case, step), 0.0
        for index in range(case.micro_batches):
            with work.autocast():
                loss = work.loss(model, index, work.batch(index))
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        norms.append(clip_gradients(model.parameters(), CLIP).item())
        losses.append(total)
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    work = Step(case, 0)
    with torch.no_grad(), work.autocast():
        held_out = sum(work.loss(model, index, work.batch(index)).item() for index in range(case.micro_batches))
    return Run(losses, norms, state_of(model), held_out)


def state_of(model: nn.Module) -> dict[str, list[float]]:
    return {name: tensor.flatten().tolist() for name, tensor in model.state_dict().items()}


def joined(world: RankPlace, aborter: GroupAborter, replicas: int) -> Group:
    return join(world, aborter, axis_group_ranks(Degrees(pipeline=world.world_size // replicas, replicate=replicas)))


def trained(case: Case, group: Group) -> Run:
    number = group.axis_groups["replicate"].rank if "replicate" in group.axis_groups else 0
    model, units = make(case)
    pipelined = pipeline(
        model, units, Step(case, 1), PipelinePosition.of(group), case.schedule, CPU, chunks=case.chunks, measured=case.measured
    )
    optimizer, losses, norms = make_optimizer(pipelined.parameters), [], []
    for step in range(1, case.steps + 1):
        pipelined.begin_step(assign_evenly(case.micro_batches, case.replicas, number), {})
        found = pipelined.run(Step(case, step))
        assert pipelined.finish_step() >= 0
        norm, bubble = pipelined.clip(CLIP)
        losses.append(total(group, list(found.values())))
        norms.append(norm.item())
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    pipelined.sync_buffers()
    assignment = assign_evenly(case.micro_batches, case.replicas, number)
    held_out = total(group, list(pipelined.evaluate(assignment, Step(case, 0)).values()))
    return Run(losses, norms, state_of(model), held_out, bubble)


def trained_alone(case: Case) -> Run:
    """All stages in this process."""
    return trained(case, SoloGroup())


def total(group: Group, losses: Sequence[Tensor]) -> float:
    """Return the sum over the world."""
    return group.start_sum(torch.stack([torch.zeros((), dtype=torch.float64), *(loss.double() for loss in losses)]).sum())().item()


def trained_all(world: RankPlace, cases: Sequence[Case]) -> list[Run]:
    """Run all cases one after the other in the same processes, each with the same number of pipelines."""
    (replicas,) = {case.replicas for case in cases}
    group = joined(world, GroupAborter(), replicas)
    runs = [trained(case, group) for case in cases]
    group.barrier_and_leave()
    group.close()
    return runs


def require_equal(case: Case, runs: Sequence[Run], bound: float) -> None:
    """Compare all ranks of a world with one process: losses, norms and parameters, relative to that process. Copies are equal to the bit."""
    expected, whole = one_process(case), dict[str, list[float]]()
    for run in runs:
        near(run.losses, expected.losses, bound, f"losses of {case}")
        near(run.norms, expected.norms, bound, f"norms of {case}")
        near([run.held_out], [expected.held_out], bound, f"held-out loss of {case}")
        for name, values in run.state.items():
            near(values, expected.state[name], bound, f"{name} of {case}")
            assert values == whole.setdefault(name, values), f"copies of {name} differ in {case}"
    assert set(whole) == set(expected.state)


def near(found: Sequence[float], expected: Sequence[float], bound: float, what: str) -> None:
    """Compare by the norm of all values together."""
    mine, other = torch.tensor(found, dtype=torch.float64), torch.tensor(expected, dtype=torch.float64)
    apart = (mine - other).norm() / other.norm().clamp(min=1e-12)
    assert apart <= bound, f"{what}: {apart:.2e} apart; {found[:3]} and {expected[:3]}"
