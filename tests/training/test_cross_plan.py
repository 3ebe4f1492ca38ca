"""A checkpoint saved under one plan is the same state under any other."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch

from paceline.distributed import env
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.solo_group import SoloGroup
from paceline.parallelism import mesh
from paceline.parallelism.plan import Coordinates
from paceline.training.build import make_ready
from paceline.training.elastic import first_assignment
from paceline.training.link import RankPlace
from paceline.training.saving import checkpoint
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import CheckpointDirectory
from paceline.training.saving.shards import tensors_of
from paceline.training.saving.storage import FolderStorage
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.state import new_state, rebuild_optimizer
from tests.gangs import Job
from tests.ranks import run_ranks
from tests.release_only import AT_LENGTH
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt

CPU = torch.device("cpu")
PLANS: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    "ddp on 2": (2, {"strategy": "ddp"}),
    "fsdp on 2": (2, {"strategy": "fsdp"}),
    "fsdp on 4": (4, {"strategy": "fsdp"}),
    "2 x 2": (4, {"strategy": "fsdp", "replicate": 2}),
    "pipeline 2": (2, {"pipeline": 2}),
    "pipeline 4": (4, {"pipeline": 4}),
    "pipeline 2 x replicate 2": (4, {"pipeline": 2, "pipeline_schedule": "zero_bubble_v"}),
}
#: Parts of rows and columns: those of three shards of two tensor parts do not divide evenly.
CUT: dict[str, tuple[int, dict[str, Any]]] = {
    "tensor 2": (2, {"strategy": "ddp", "tensor": 2}),
    "context 2 x replicate 2": (4, {"strategy": "ddp", "context": 2}),
    "tensor 2 x shard 2": (4, {"strategy": "fsdp", "tensor": 2}),
    "tensor 2 x shard 3": (6, {"strategy": "fsdp", "tensor": 2}),
    "tensor 2 x context 2 x replicate 2": (8, {"strategy": "ddp", "tensor": 2, "context": 2}),
    "pipeline 2 x tensor 2": (4, {"strategy": "ddp", "pipeline": 2, "tensor": 2}),
    "pipeline 2 x shard 2 x tensor 2": (8, {"strategy": "fsdp", "pipeline": 2, "tensor": 2}),
}
EVERY = PLANS | CUT
#: One process, replicas of shards, and replicas of stages.
FEW = ("single", "2 x 2", "pipeline 2 x replicate 2")


class NothingAsked:
    pause_wanted = checkpoint_wanted = leave_wanted = gradients_wanted = False
    outcome_bytes = None


def under(plan: str, steps: int = 12) -> dict[str, Any]:
    world_size, parallelism = EVERY[plan]
    document = tiny_gpt(world_size, steps=steps) | {"parallelism": parallelism, "reproducible": False}
    return document | {"model": document["model"] | {"layers": 2}}


def saved(world: RankPlace, plan: str, source: str | None, folder: str) -> str:
    """Two steps under `plan`, or what `source` holds, saved; its fingerprint."""
    spec = JobSpec.model_validate(under(plan))
    state, sizes = new_state(spec, CPU, env.cache_directory()), spec.parallelism.degrees(world.world_size)
    group = join(world, GroupAborter(), mesh.axis_group_ranks(sizes))
    coordinates = Coordinates(sizes, group.rank)
    steps_from = make_ready(spec, state, group, coordinates)
    rebuild_optimizer(state, spec)
    if source is None:
        step_runner = steps_from(spec, first_assignment(derived.micro_batches(spec), coordinates, None))
        for _ in range(2):
            step_runner.run(NothingAsked())
    else:
        checkpoint.load(group, state, Path(source), checkpoint.verify(group, Path(source)))
    checkpoints = CheckpointDirectory(FolderStorage(Path(folder)), "job", 1, spec, group)
    return checkpoint.save(checkpoints, state, {}).manifest.parameters_sha256 or ""


def everything(folder: Path) -> dict[str, torch.Tensor]:
    """Parameters and optimizer state in one process."""
    state = new_state(JobSpec.model_validate(under("single")), CPU, env.cache_directory())
    checkpoint.load(SoloGroup(), state, folder, manifests.read(folder))
    return {
        f"{part} {name}": value for part, values in tensors_of(state).items() for name, value in values.items() if torch.is_tensor(value)
    }


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("fsdp on 2", PLANS if AT_LENGTH else FEW),
        ("2 x 2", PLANS),
        ("single", EVERY),
        ("pipeline 2", EVERY),
        ("tensor 2 x shard 2", ("ddp on 2", "tensor 2")),
        ("tensor 2 x shard 3", ("fsdp on 4", "tensor 2 x shard 2")),
        ("tensor 2 x context 2 x replicate 2", ("2 x 2", "tensor 2 x shard 3")),
        ("pipeline 2 x tensor 2", ("tensor 2", "fsdp on 2", "pipeline 2")),
        ("pipeline 2 x shard 2 x tensor 2", ("ddp on 2", "pipeline 2 x tensor 2", "tensor 2 x shard 3")),
    ],
)
def test_any_plan_loads_it_to_the_last_bit(tmp_path: Path, source: str, targets: Iterable[str]) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (fingerprint, *others) = run_ranks(saved, EVERY[source][0], source, None, str(first))
    assert set(others) <= {fingerprint}
    (folder,) = first.glob("step-2.*")
    expected = everything(folder)
    assert len(expected) > 20
    for number, plan in enumerate(targets):
        again = tmp_path / str(number)
        again.mkdir()
        assert set(run_ranks(saved, EVERY[plan][0], plan, str(folder), str(again))) == {fingerprint}
        found = everything(next(iter(again.glob("step-2.*"))))
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_through_several_plans_in_a_row_nothing_changes(tmp_path: Path) -> None:
    every = ("pipeline 2", "single", "pipeline 4", "fsdp on 2", "pipeline 2 x replicate 2")
    fingerprints, source = set(), None
    for number, plan in enumerate(every if AT_LENGTH else ("pipeline 2", "fsdp on 2", "single")):
        folder = tmp_path / str(number)
        folder.mkdir()
        fingerprints |= set(run_ranks(saved, PLANS[plan][0], plan, source, str(folder)))
        source = str(next(iter(folder.glob("step-2.*"))))
    assert len(fingerprints) == 1
    first, last = everything(next(iter((tmp_path / "0").glob("step-2.*")))), everything(Path(str(source)))
    assert last.keys() == first.keys()
    assert all(torch.equal(last[name], first[name]) for name in first)


def train_to(job: Job, world_size: int, *restore_from: str) -> dict[int, Any]:
    ends = job.run(world_size, restore_from=restore_from, restore_required=bool(restore_from))
    assert [end.exit_code for end in ends] == [0] * world_size, ends[0].output
    return ends[0].curve("loss")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ddp on 2", "fsdp on 2"),
        ("fsdp on 4", "fsdp on 2"),
        ("fsdp on 2", "single"),
        ("2 x 2", "ddp on 2"),
        ("pipeline 2", "single"),
        ("single", "pipeline 4"),
        ("pipeline 4", "fsdp on 2"),
        ("fsdp on 2", "pipeline 2 x replicate 2"),
        ("single", "tensor 2 x shard 2"),
        ("tensor 2 x shard 2", "ddp on 2"),
        ("context 2 x replicate 2", "tensor 2"),
    ],
)
def test_the_curve_goes_on_under_another_plan(make_job: MakeJob, before: str, after: str) -> None:
    straight = make_job(under(before) | {"checkpoint": {"every_steps": 6}}, "straight")
    curve = train_to(straight, EVERY[before][0])
    (halfway,) = straight.checkpoints.glob("step-6.*")
    continued = train_to(make_job(under(after), "continued"), EVERY[after][0], str(halfway))
    assert continued == pytest.approx({step: loss for step, loss in curve.items() if step > 6}, rel=1e-5)
