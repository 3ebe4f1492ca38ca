"""Recovery in place of models that are cut over a tensor, context or pipeline axis: as of sharded ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline.training.link import Progress
from tests.gangs import Job, RunningGang
from tests.training.conftest import MakeJob
from tests.training.specs import tiny_gpt
from tests.training.test_fall_back import assert_same_processes, replica_carries_on, saved_tensors, survive

pytestmark = pytest.mark.timeout(240)  # a step over a tensor axis takes a fifth of a second on a CPU

STEPS = 70
#: Killed then, between two checkpoints.
STEP = 30
PLANS: dict[str, dict[str, Any]] = {
    "tensor": {"strategy": "ddp", "tensor": 2},
    "context": {"strategy": "ddp", "context": 2},
    "pipeline": {"strategy": "ddp", "pipeline": 2},
    "tensor x shard": {"strategy": "fsdp", "shard": 2, "tensor": 2},
    "pipeline x tensor": {"strategy": "ddp", "pipeline": 2, "tensor": 2},
    "pipeline x shard": {"strategy": "fsdp", "shard": 2, "pipeline": 2},
}


def sharded_job(plan: dict[str, Any], ranks: int) -> dict[str, Any]:
    return tiny_gpt(ranks, steps=STEPS) | {"parallelism": plan, "checkpoint": {"every_steps": 20}, "fault_tolerance": {}}


def strike(job: Job, ranks: int, victim: int) -> RunningGang:
    gang = job.start(ranks)
    gang.agent.until(1, 0, Progress, lambda said: said.step >= STEP)
    gang.kill(victim)
    return gang


@pytest.mark.slow("two whole jobs, one of them with a fault")
@pytest.mark.parametrize(
    ("name", "ranks"),
    [("tensor", 2), ("context", 2), ("pipeline", 2), ("tensor x shard", 4), ("pipeline x tensor", 4), ("pipeline x shard", 4)],
)
def test_a_new_process_takes_the_place_and_the_run_is_the_undisturbed_one(make_job: MakeJob, name: str, ranks: int) -> None:
    """To the last bit, whoever computes what. The survivors move up: rank 1 is rank 0 afterwards."""
    spec = sharded_job(PLANS[name], ranks)
    well, job = make_job(spec, "undisturbed"), make_job(spec)
    well.run(ranks)
    gang = strike(job, ranks, 0)
    pids = gang.pids()
    survive(gang, *range(1, ranks), newcomers=1)
    assert_same_processes(gang, 2, pids[1:ranks])
    ends = gang.wait()
    assert [end.exit_code for end in ends] == [-9, *[0] * ranks], gang.left(2, 0).output
    expected, found = saved_tensors(well), saved_tensors(job)
    assert {each for each, value in found.items() if not torch.equal(value, expected[each])} == set()


@pytest.mark.slow("two whole jobs, one of them with a fault")
@pytest.mark.parametrize(("name", "replica", "parked"), [("tensor", (0, 1), 2), ("context", (0, 1), 2), ("pipeline", (0, 2), 1)])
def test_a_replica_carries_on_without_a_checkpoint(make_job: MakeJob, name: str, replica: tuple[int, int], parked: int) -> None:
    spec = sharded_job(PLANS[name], 4)
    (first, *_) = make_job(spec, "undisturbed").run(4)
    curve, carried = replica_carries_on(strike(make_job(spec), 4, 3), 3, replica, parked)
    assert carried["step"] >= STEP
    assert curve == pytest.approx(first.curve("loss"), rel=1e-4)
