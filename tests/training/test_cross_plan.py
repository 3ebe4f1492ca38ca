"""A checkpoint saved under one plan is the same state under any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from distributed.abort import Fence
from distributed.process_group import SoloGroup, join
from parallelism import mesh
from parallelism.apply import parallelize
from parallelism.plan import even_deal
from tests.gangs import Job
from tests.ranks import run_ranks
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from training import checkpoint
from training import manifest as manifests
from training.build import choices_of
from training.link import World
from training.shards import tensors_of
from training.spec import JobSpec
from training.state import follow_model, new_state
from training.step import Stepper
from training.vault import Vault

CPU = torch.device("cpu")
PLANS: dict[str, tuple[int, dict[str, Any]]] = {
    "single": (1, {"strategy": "single"}),
    "ddp on 2": (2, {"strategy": "ddp"}),
    "fsdp on 2": (2, {"strategy": "fsdp"}),
    "fsdp on 4": (4, {"strategy": "fsdp"}),
    "2 x 2": (4, {"strategy": "fsdp", "replicate": 2}),
}


class NothingAsked:
    pause_wanted = checkpoint_wanted = leave_wanted = False


def under(plan: str, steps: int = 12) -> dict[str, Any]:
    world_size, parallelism = PLANS[plan]
    return tiny_gpt(world_size, steps=steps) | {"parallelism": parallelism, "reproducible": False}


def saved(world: World, plan: str, source: str | None, folder: str) -> str:
    """Two steps under `plan`, or what `source` holds, saved; its fingerprint."""
    spec = JobSpec.model_validate(under(plan))
    state, sizes = new_state(spec, CPU, Path(folder)), spec.parallelism.degrees(world.world_size)
    group = join(world, Fence(), mesh.lines(sizes))
    wrapped = parallelize(state.task.model, sizes, CPU, group, reproducible=False, choices=choices_of(spec))
    follow_model(state, spec)
    if source is None:
        stepper = Stepper(spec, state, group, wrapped, even_deal(spec.micro_batches, group.world_size, group.rank))
        for _ in range(2):
            stepper.run(NothingAsked())
    else:
        checkpoint.load(group, state, Path(source), checkpoint.verify(group, Path(source)))
    vault = Vault(Path(folder), "job", 1, spec, group)
    return checkpoint.save(vault, state, {}).manifest.parameters_sha256 or ""


def everything(folder: Path) -> dict[str, torch.Tensor]:
    """Parameters and optimizer state in one process."""
    state = new_state(JobSpec.model_validate(under("single")), CPU, folder)
    checkpoint.load(SoloGroup(), state, folder, manifests.read(folder))
    return {
        f"{part} {name}": value for part, values in tensors_of(state).items() for name, value in values.items() if torch.is_tensor(value)
    }


@pytest.mark.parametrize("source", ["fsdp on 2", "2 x 2", "single"])
def test_any_plan_loads_it_to_the_last_bit(tmp_path: Path, source: str) -> None:
    first = tmp_path / "first"
    first.mkdir()
    (fingerprint, *others) = run_ranks(saved, PLANS[source][0], source, None, str(first))
    assert set(others) <= {fingerprint}
    (folder,) = first.glob("step-2.*")
    expected = everything(folder)
    assert len(expected) > 20
    for number, plan in enumerate(PLANS):
        again = tmp_path / str(number)
        again.mkdir()
        assert set(run_ranks(saved, PLANS[plan][0], plan, str(folder), str(again))) == {fingerprint}
        found = everything(next(iter(again.glob("step-2.*"))))
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def train_to(job: Job, world_size: int, *restore_from: str) -> dict[int, Any]:
    ends = job.run(world_size, restore_from=restore_from, restore_required=bool(restore_from))
    assert [end.exit_code for end in ends] == [0] * world_size, ends[0].output
    return ends[0].curve("loss")


@pytest.mark.parametrize(
    ("before", "after"), [("ddp on 2", "fsdp on 2"), ("fsdp on 4", "fsdp on 2"), ("fsdp on 2", "single"), ("2 x 2", "ddp on 2")]
)
def test_the_curve_goes_on_under_another_plan(make_job: MakeJob, before: str, after: str) -> None:
    straight = make_job(under(before) | {"checkpoint": {"every_steps": 6}}, "straight")
    curve = train_to(straight, PLANS[before][0])
    (halfway,) = straight.checkpoints.glob("step-6.*")
    continued = train_to(make_job(under(after), "continued"), PLANS[after][0], str(halfway))
    assert continued == pytest.approx({step: loss for step, loss in curve.items() if step > 6}, rel=1e-5)
