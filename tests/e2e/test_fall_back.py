"""kill -9 among ranks that hold parts of the model, on a whole stack: the survivors keep their processes, and the page says what it cost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack, wait_until
from tests.faults import Fault, faulty_job, slow_down
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

STEPS = 40
SAVED_EVERY = 8
FAULT_STEP = 21
SAVED_BEFORE = 16
CHANGE_TIMEOUT_SECONDS = 60
#: Sums are added up in another order on another number of ranks.
CLOSE = 1e-5
FSDP = {"strategy": "fsdp"}
PAIRS = {"strategy": "fsdp", "shard": 2}


@pytest.fixture(scope="module")
def four(empty_stack: Stack) -> Stack:
    """Agents with one slot each."""
    empty_stack.up(free_port(), agents=4)
    return empty_stack


def sharded(folder: Path, *faults: Fault, parallelism: dict[str, Any] = FSDP, **resources: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"parallelism": parallelism, "checkpoint": {"every_steps": SAVED_EVERY}, "resources": resources}
    return faulty_job(folder, *faults, steps=STEPS, task="gpt", **known)


@pytest.fixture(scope="module")
def undisturbed(four: Stack, tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    job_id = four.submit(sharded(tmp_path_factory.mktemp("well"), nodes=2))
    four.wait_for_state(job_id, "completed", "failed", timeout=CHANGE_TIMEOUT_SECONDS)
    return dict(four.raw_curve(job_id))


class Job:
    """Whose rank `victim` waits in the middle of step FAULT_STEP until it is killed, when its pids are known and its `spares` are warm."""

    def __init__(self, stack: Stack, folder: Path, victim: int, *, spares: int = 0, **known: Any) -> None:
        fault = Fault(victim, FAULT_STEP, kind="hold", moment="backward", generation=1)
        spec = sharded(folder, fault, **known)
        self.stack, self._slow = stack, slow_down(folder)
        self.id = stack.submit(spec | {"fault_tolerance": {"spares": spares}})
        wait_until("the fault's step", (folder / fault.done).exists, CHANGE_TIMEOUT_SECONDS)
        self.before = wait_until("the spares", lambda: self._with_spares(spares), CHANGE_TIMEOUT_SECONDS)
        self.dead = next(rank for rank in self.before["ranks"] if rank["rank"] == victim)
        self.survivors = {rank["node_name"]: rank["pid"] for rank in self.before["ranks"] if rank["rank"] != victim}

    def kill(self) -> None:
        os.kill(self.dead["pid"], signal.SIGKILL)

    def _with_spares(self, count: int) -> dict[str, Any] | None:
        job = self.stack.job(self.id)
        return job if job["state"] == "running" and sum(rank["state"] == "parked" for rank in job["ranks"]) == count else None

    def after(self, size: int) -> dict[str, Any]:
        """Once it runs again, with so many ranks."""

        def again() -> dict[str, Any] | None:
            job = self.stack.job(self.id)
            whole = [rank for rank in job["ranks"] if not rank["parked"]]
            return job if job["generation"] > 1 and job["state"] in ("running", "completed") and len(whole) == size else None

        return wait_until(f"{size} ranks after the fault", again, CHANGE_TIMEOUT_SECONDS)

    def finish(self, undisturbed: dict[int, float]) -> dict[str, Any]:
        """Its one incident; each step was finished, and however often, with the loss of a run in which nothing happened."""
        self._slow.unlink()
        done = self.stack.wait_for_state(self.id, "completed", "failed", timeout=CHANGE_TIMEOUT_SECONDS)
        assert done["state"] == "completed", done
        curve = self.stack.raw_curve(self.id)
        assert {step for step, _ in curve} == set(range(1, STEPS + 1))
        assert [loss for _, loss in curve] == pytest.approx([undisturbed[step] for step, _ in curve], rel=CLOSE)
        (incident,) = self.stack.get(f"/training/jobs/{self.id}/incidents")
        assert [phase["name"] for phase in incident["phases"]] == ["detect", "decide", "fence", "rebuild", "transfer", "first_step"]
        assert sum(phase["seconds"] for phase in incident["phases"]) == pytest.approx(incident["outage_seconds"], rel=0.02)
        return dict(incident)


def pids(job: dict[str, Any]) -> dict[str, int]:
    return {rank["node_name"]: rank["pid"] for rank in job["ranks"] if not rank["parked"]}


def assert_fell_back(stack: Stack, job: Job, incident: dict[str, Any]) -> None:
    assert (incident["action"], incident["step"], incident["resumed_step"]) == ("fell_back", FAULT_STEP - 1, SAVED_BEFORE), incident
    assert incident["steps_lost"] == FAULT_STEP - 1 - SAVED_BEFORE
    assert incident["done"].endswith("as generation 2 from step 16; 4 steps had to be repeated"), incident["done"]
    assert stack.job(job.id)["restarts"] == 1
    goodput = stack.get(f"/training/jobs/{job.id}/goodput")
    assert (goodput["useful_steps"], goodput["redone_steps"]) == (STEPS, FAULT_STEP - 1 - SAVED_BEFORE)


def test_two_of_three_go_on_with_larger_parts(four: Stack, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    job = Job(four, tmp_path / "code", 1, nodes=3, min_nodes=2)
    with four.cordoned():
        job.kill()
        assert pids(job.after(2)) == job.survivors
        incident = job.finish(undisturbed)
    assert_fell_back(four, job, incident)
    assert (incident["old_size"], incident["new_size"], incident["survivors"]) == (3, 2, [0, 2])


def test_and_grow_back_without_losing_a_step(four: Stack, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    job = Job(four, tmp_path / "code", 0, nodes=3, min_nodes=2)
    job.kill()
    grown = job.after(3)
    assert job.survivors.items() <= pids(grown).items()
    assert_fell_back(four, job, job.finish(undisturbed))  # which counts the steps that were done again
    assert [each["world_size"] for each in four.job(job.id)["generations"]] == [3, 2, 3]


def test_a_spare_takes_the_place_of_a_lost_part(four: Stack, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    job = Job(four, tmp_path / "code", 1, nodes=2, spares=1)
    job.kill()
    assert pids(job.after(2)) == job.survivors  # the spare is one of them
    assert_fell_back(four, job, job.finish(undisturbed))


def test_a_new_process_takes_the_place_in_the_same_slot(four: Stack, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    """Of a job of fixed size, which waits for it with its survivors in place."""
    job = Job(four, tmp_path / "code", 0, nodes=2)
    job.kill()
    after = pids(job.after(2))
    assert job.survivors.items() <= after.items()
    assert after[job.dead["node_name"]] not in (None, job.dead["pid"])
    incident = job.finish(undisturbed)
    assert_fell_back(four, job, incident)
    assert (incident["old_size"], incident["new_size"]) == (2, 2)


def test_a_lost_shard_group_goes_and_comes_back(four: Stack, tmp_path: Path, undisturbed: dict[int, float]) -> None:
    """Its replica carries on from the step that broke off, and its survivor waits until there are two again."""
    job = Job(four, tmp_path / "code", 3, parallelism=PAIRS, nodes=4)
    with four.cordoned():
        job.kill()
        closed_up = job.after(2)
    assert pids(closed_up).items() <= job.survivors.items()
    grown = job.after(4)
    assert job.survivors.items() <= pids(grown).items()
    incident = job.finish(undisturbed)
    assert (incident["action"], incident["steps_lost"], incident["resumed_step"]) == ("closed_up", 0, FAULT_STEP - 1), incident
    assert four.job(job.id)["restarts"] == 0
