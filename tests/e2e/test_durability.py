"""Nothing is lost and nothing is doubled, whoever is killed: coordinators, agents, ranks, and the metrics database itself."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack, wait_until
from tests.ports import free_port
from tests.processes import command_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

CODE = Path(__file__).parent / "user_code"
SEED = 20
COORDINATOR_KILLS = 2
RANK_KILLS = 3


@pytest.fixture(scope="module")
def stack(own_stack: Stack) -> Stack:
    return own_stack


def records(stack: Stack, job_id: str) -> Counter[tuple[int, int]]:
    """How often each (rank, step) is stored, whatever its generation."""
    with closing(sqlite3.connect(stack.data / "metrics.db")) as database:
        return Counter(database.execute("SELECT rank, step FROM metric_records WHERE job_id = ?", (job_id,)).fetchall())


def lines(stack: Stack, job_id: str) -> list[str]:
    with closing(sqlite3.connect(stack.data / "metrics.db")) as database:
        return [text for (text,) in database.execute("SELECT text FROM log_lines WHERE job_id = ? ORDER BY seq", (job_id,))]


def once(steps: int, ranks: int = 1) -> Counter[tuple[int, int]]:
    return Counter((rank, step) for rank in range(ranks) for step in range(1, steps + 1))


def committed(stack: Stack, job_id: str) -> Counter[int]:
    items = stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"]
    return Counter(event["data"]["step"] for event in items if event["type"] == "checkpoint.committed")


def pids(job: dict[str, Any]) -> list[int]:
    return [rank["pid"] for rank in job["ranks"]]


def kill_agents(stack: Stack) -> None:
    for process in [process for process in stack.processes() if "paceline.cluster.agent.main" in command_of(process)]:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=5)


def counting(count: int, per_second: int) -> dict[str, Any]:
    return {
        "name": "counting",
        "script": {"path": "counting.py", "args": [str(count), str(per_second)]},
        "environment": {"working_directory": str(CODE)},
    }


def test_a_coordinator_killed_again_and_again_loses_and_doubles_nothing(stack: Stack) -> None:
    chance = random.Random(SEED)
    training = stack.submit(tiny_gpt("steady", steps=800, nodes=1, checkpoint_every=100))
    printing = stack.submit(counting(400, per_second=25))
    for job_id in (training, printing):
        stack.wait_for_state(job_id, "running")
    before = pids(stack.job(training)), pids(stack.job(printing))
    for _ in range(COORDINATOR_KILLS):
        step = stack.job(training)["progress"]["step"]
        stack.wait_for_step(training, min(800, step + chance.randrange(1, 100)))
        stack.kill_coordinator()
        stack.up(free_port())
        assert (pids(stack.job(training)), pids(stack.job(printing))) == before, "a rank was restarted"
    for job_id in (training, printing):
        done = stack.wait_for_state(job_id, "completed", "failed", timeout=90)
        assert (done["state"], done["generation"]) == ("completed", 1), done
    assert records(stack, training) == once(800)
    assert lines(stack, printing) == [f"line {number:05d}" for number in range(400)]
    assert committed(stack, training) == Counter(range(100, 801, 100))


def test_agents_killed_and_started_again_find_their_ranks_as_they_were(stack: Stack) -> None:
    job_id = stack.submit(tiny_gpt("orphaned", steps=300))
    stack.wait_for_step(job_id, 20)
    before = pids(stack.job(job_id))
    kill_agents(stack)
    stack.up(free_port())
    assert pids(stack.job(job_id)) == before
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=90)
    assert (done["state"], done["generation"]) == ("completed", 1), done
    assert records(stack, job_id) == once(300, ranks=2)


def test_a_coordinator_that_lost_its_metrics_is_given_them_again(stack: Stack) -> None:
    job_id = stack.submit(tiny_gpt("forgotten", steps=300, nodes=1))
    stack.wait_for_step(job_id, 50)
    stack.kill_coordinator()
    for file in stack.data.glob("metrics.db*"):
        file.unlink()
    stack.up(free_port())
    stack.wait_for_state(job_id, "completed", timeout=90)
    assert records(stack, job_id) == once(300)


@pytest.mark.release
def test_a_rank_killed_at_any_moment_leaves_a_usable_newest_checkpoint(stack: Stack) -> None:
    """With a checkpoint at every other step, most kills strike while one is being saved."""
    chance = random.Random(SEED)
    spec = tiny_gpt("struck", steps=100, nodes=1, checkpoint_every=2, fault_tolerance={"max_restarts": RANK_KILLS})
    job_id = stack.submit(spec)
    for generation in range(1, RANK_KILLS + 1):
        job = wait_until("the next generation's steps", lambda number=generation: stepping(stack, job_id, number), 60)
        stack.wait_for_step(job_id, job["progress"]["step"] + chance.randrange(5, 25))
        os.kill(pids(stack.job(job_id))[0], signal.SIGKILL)
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=90)
    assert (done["state"], done["restarts"]) == ("completed", RANK_KILLS), done
    assert all(generation["start_step"] > 0 for generation in done["generations"][1:]), done["generations"]
    assert {step for _, step in records(stack, job_id)} == set(range(1, 101))
    assert not [
        event for event in stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"] if event["type"] == "checkpoint.damaged"
    ]


def stepping(stack: Stack, job_id: str, generation: int) -> dict[str, Any] | None:
    job = stack.job(job_id)
    running = (job["state"], job["generation"]) == ("running", generation)
    return job if running and job["progress"]["step"] > (job["generations"][-1]["start_step"] or 0) else None


@pytest.mark.release
def test_a_run_paused_twice_draws_the_same_curve_to_the_last_bit(stack: Stack) -> None:
    spec = tiny_gpt("even", steps=200, nodes=1)
    spec["model"]["dropout"] = 0.1
    plain, paused = stack.submit(spec), stack.submit(spec | {"name": "paused"})
    for step in (20, 90):
        stack.wait_for_step(paused, step)
        stack.change("PUT", paused, "pause")
        stack.wait_for_state(paused, "paused")
        stack.change("PUT", paused, "resume")
    for job_id in (plain, paused):
        assert stack.wait_for_state(job_id, "completed", "failed", timeout=90)["state"] == "completed"
    assert stack.job(paused)["generation"] == 3
    assert stack.raw_curve(paused) == stack.raw_curve(plain)
    assert records(stack, paused) == once(200)
