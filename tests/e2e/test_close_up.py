"""kill -9 in the middle of a step, on a whole stack: the survivors keep their processes, and the curve has neither hole nor double."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack, wait_until
from tests.processes import command_of, surroundings_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

STEPS = 150
#: Of an outage on a machine that has more to do; the figures are `scripts/bench/recovery.py`'s.
MOST_SECONDS = 10.0
CLOSE_UP: dict[str, Any] = {"fault_tolerance": {"recovery": "close_up", "max_restarts": 0}}


def job(name: str, nodes: int, **changes: Any) -> dict[str, Any]:
    return tiny_gpt(name, STEPS, nodes=nodes, **CLOSE_UP, **changes) | {
        "training": {"steps": STEPS, "global_batch_size": 6, "micro_batch_size": 1, "eval_every_steps": None, "seed": 7}
    }


def pids_by_node(stack: Stack, job_id: str) -> dict[str, int]:
    return {rank["node_name"]: rank["pid"] for rank in stack.job(job_id)["ranks"] if not rank["parked"]}


def assert_survived(stack: Stack, job_id: str, before: dict[str, int], dead: dict[str, Any]) -> None:
    """A replacement for the dead rank may have joined meanwhile."""
    after = pids_by_node(stack, job_id)
    assert {name: pid for name, pid in before.items() if name != dead["node_name"]}.items() <= after.items()
    assert dead["pid"] not in after.values()


def assert_whole(stack: Stack, job_id: str, generations: int) -> None:
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert (done["state"], done["restarts"]) == ("completed", 0), done
    assert done["generation"] in (generations, generations + 1), done  # as it closed up, or grown back
    assert sorted(step for step, _ in stack.raw_curve(job_id)) == list(range(1, STEPS + 1))
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    assert (incident["action"], incident["steps_lost"], incident["next_generation"]) == ("closed_up", 0, generations), incident
    assert [phase["name"] for phase in incident["phases"]] == ["detect", "decide", "fence", "rebuild", "transfer", "first_step"]
    assert sum(phase["seconds"] for phase in incident["phases"]) == pytest.approx(incident["outage_seconds"], rel=0.02)
    assert 0 < incident["outage_seconds"] < MOST_SECONDS, incident


@pytest.mark.parametrize(("nodes", "victim"), [(2, 1), (3, 1), (3, 0)])
def test_a_killed_rank_costs_its_survivors_nothing(three_agents: Stack, nodes: int, victim: int) -> None:
    stack = three_agents
    job_id = stack.submit(job(f"rank-{nodes}-{victim}", nodes))
    stack.wait_for_step(job_id, 20)
    before = pids_by_node(stack, job_id)
    dead = next(rank for rank in stack.job(job_id)["ranks"] if rank["rank"] == victim)
    os.kill(dead["pid"], signal.SIGKILL)
    wait_until("the next generation", lambda: stack.job(job_id)["generation"] >= 2, 30)
    stack.wait_for_state(job_id, "running", "completed", timeout=30)
    assert_survived(stack, job_id, before, dead)
    assert_whole(stack, job_id, generations=2)


@pytest.mark.parametrize("gap", [0.05, 0.15, 0.3])
def test_three_quick_deaths_are_recovered_from_and_the_next_job_runs(three_agents: Stack, gap: float) -> None:
    """They stopped the scheduler of the whole cluster, for good: of ranks 1, 2 and 0, each while the death before it is dealt with."""
    stack = three_agents
    victim = stack.submit(job(f"quick-{gap}", 3) | {"fault_tolerance": {"recovery": "close_up", "max_restarts": 3}})
    stack.wait_for_step(victim, 20)
    pids = {rank["rank"]: rank["pid"] for rank in stack.job(victim)["ranks"]}
    beside = stack.submit(tiny_gpt(f"beside-{gap}", 10, nodes=1))
    subprocess.run(["bash", "-c", f"kill -9 {pids[1]}; sleep {gap}; kill -9 {pids[2]}; sleep {gap}; kill -9 {pids[0]}"], check=False)
    done = stack.wait_for_state(victim, "completed", "failed", timeout=120)
    assert done["state"] == "completed", done
    assert done["generation"] > 1, done
    assert sorted(step for step, _ in stack.raw_curve(victim)) == list(range(1, STEPS + 1))
    stack.wait_for_state(beside, "completed", timeout=60)


def test_a_killed_node_is_given_up_on_its_peers_word(three_agents: Stack) -> None:
    """The last of this file: nobody starts the node again."""
    stack = three_agents
    job_id = stack.submit(job("node", 3))
    stack.wait_for_step(job_id, 20)
    before = pids_by_node(stack, job_id)
    dead = next(rank for rank in stack.job(job_id)["ranks"] if rank["rank"] == 1)
    kill_node(stack, dead["node_name"])
    wait_until("the next generation", lambda: stack.job(job_id)["generation"] >= 2, 30)
    stack.wait_for_state(job_id, "running", "completed", timeout=30)
    assert_survived(stack, job_id, before, dead)
    assert_whole(stack, job_id, generations=2)


def kill_node(stack: Stack, name: str) -> None:
    """Agent, spawner and ranks, the agent first, as when a machine loses power."""
    folder = str(Path("agents") / name)
    mine = [process for process in stack.processes() if folder in surroundings_of(process)]
    for process in sorted(mine, key=lambda process: "paceline.cluster.agent.main" not in " ".join(command_of(process))):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
