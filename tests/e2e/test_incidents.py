"""What a killed rank leaves behind: the truth about it in every place, every second accounted for, and the same numbers to the last bit."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(480)]

STEPS = 120
LENGTH: dict[str, Any] = {
    "steps": STEPS,
    "global_batch_size": 6,
    "micro_batch_size": 1,
    "eval_every_steps": 50,
    "eval_samples": 16,
    "seed": 7,
}
PATIENCE = 200


@pytest.fixture(scope="module")
def stack(three_agents: Stack) -> Stack:
    return three_agents


def job(name: str, nodes: int, recovery: str, **changes: Any) -> dict[str, Any]:
    return tiny_gpt(name, STEPS, nodes=nodes, fault_tolerance={"recovery": recovery}, **changes) | {"training": LENGTH}


def kill_a_rank(stack: Stack, job_id: str, after_step: int) -> dict[str, Any]:
    """As it was just before."""
    stack.wait_for_step(job_id, after_step, timeout=PATIENCE)
    victim: dict[str, Any] = next(rank for rank in stack.job(job_id)["ranks"] if rank["rank"] == 1)
    os.kill(victim["pid"], signal.SIGKILL)
    wait_until("the next generation", lambda: stack.job(job_id)["generation"] == 2, PATIENCE)
    stack.wait_for_state(job_id, "completed", "failed", timeout=PATIENCE)
    return victim


def only_incident(stack: Stack, job_id: str) -> dict[str, Any]:
    incidents: list[dict[str, Any]] = stack.get(f"/training/jobs/{job_id}/incidents")
    assert len(incidents) == 1, (incidents, stack.logs())
    return incidents[0]


def assert_exactly_once(stack: Stack, job_id: str) -> dict[str, Any]:
    audit: dict[str, Any] = stack.get(f"/training/jobs/{job_id}/samples")
    assert (audit["exactly_once"], audit["steps"], audit["samples"]) == (True, STEPS, STEPS * LENGTH["global_batch_size"]), audit
    assert sum(use["used"] for use in audit["epochs"]) == audit["samples"]
    assert [each["generation"] for each in audit["ranges"]] == [1, 2]
    return audit


def assert_told_truthfully(incident: dict[str, Any], victim: dict[str, Any]) -> None:
    culprit = incident["culprit"]
    assert (culprit["rank"], culprit["node_name"], culprit["signal"]) == (1, victim["node_name"], "SIGKILL"), incident
    assert incident["what"] == f"rank 1 on {victim['node_name']} was killed by SIGKILL"
    assert incident["why"].startswith("rank 1: killed by SIGKILL; ")
    assert 1 not in [other["rank"] for other in culprit["victims"]]
    assert incident["outcome"] == "recovered"
    assert sum(phase["seconds"] for phase in incident["phases"]) == pytest.approx(incident["outage_seconds"], rel=0.02)


def parts_of(stack: Stack, job_id: str) -> dict[str, float]:
    """Of the goodput, which adds up to the time between the first slots and the job's end."""
    found, ended = stack.get(f"/training/jobs/{job_id}/goodput"), stack.job(job_id)
    parts = {part["cause"]: part["seconds"] for part in found["parts"]}
    assert sum(parts.values()) == pytest.approx(found["wall_seconds"], rel=1e-6)
    assert (found["since"], found["until"], found["useful_steps"]) == (ended["started_at"], ended["ended_at"], STEPS)
    assert found["goodput"] == pytest.approx(parts["stepping"] / found["wall_seconds"])
    assert parts.get("unaccounted", 0.0) < 0.01 * found["wall_seconds"], parts
    return parts


def test_a_run_that_lost_a_rank_is_the_undisturbed_one_and_its_time_is_accounted_for(stack: Stack) -> None:
    quiet, hurt = stack.submit(job("quiet", 1, "restart")), stack.submit(job("hurt", 2, "close_up"))
    for job_id in (quiet, hurt):
        stack.wait_for_state(job_id, "running", "completed", timeout=PATIENCE)
    with stack.cordoned():
        victim = kill_a_rank(stack, hurt, after_step=20)
    stack.wait_for_state(quiet, "completed", timeout=PATIENCE)
    incident = only_incident(stack, hurt)
    assert_told_truthfully(incident, victim)
    assert (incident["old_size"], incident["new_size"], incident["survivors"], incident["steps_lost"]) == (2, 1, [0], 0)
    assert 0 <= incident["seconds_lost"] < incident["outage_seconds"] + 5
    assert_exactly_once(stack, hurt)
    parts = parts_of(stack, hurt)
    assert 0 < parts["incident"] < incident["outage_seconds"]  # its first step counts as stepping
    assert parts["evaluating_and_saving"] > 0
    assert parts_of(stack, quiet).keys() == {"starting", "stepping", "evaluating_and_saving", "stopping"}
    done = stack.paceline("compare", quiet, hurt, "--json", "--server", stack.server, "--api-key", stack.api_key)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = json.loads(done.stdout)["items"]
    same = f"same run, to the last bit: {STEPS} of {STEPS} steps equal, and the parameters at step {STEPS}, on 1 and 2 ranks, through 1 recovery"
    assert found["text"] == same
    assert {metric["name"]: metric["equal"] for metric in found["metrics"]}["eval_loss"] == 3
    shown = stack.paceline("show", hurt, "--server", stack.server, "--api-key", stack.api_key)
    assert "ran with 1 of 2 ranks" in shown.stdout, shown.stdout + shown.stderr
    assert incident["what"] in shown.stdout


def test_a_restart_blames_the_rank_that_was_killed_and_counts_what_it_did_again(stack: Stack) -> None:
    job_id = stack.submit(job("restarted", 2, "restart", checkpoint_every=15))
    victim = kill_a_rank(stack, job_id, after_step=25)
    incident = only_incident(stack, job_id)
    assert_told_truthfully(incident, victim)
    assert [phase["name"] for phase in incident["phases"]] == ["detect", "decide", "fence", "place", "transfer", "first_step"]
    assert incident["resumed_step"] % 15 == 0
    (recovering,) = [
        event
        for event in stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"]
        if event["type"] == "job.state" and event["data"]["to"] == "recovering"
    ]
    assert recovering["cause"].startswith("rank 1: killed by SIGKILL; ")
    audit = assert_exactly_once(stack, job_id)
    parts = parts_of(stack, job_id)
    assert parts["incident"] > 0
    if audit["discarded_steps"]:
        assert parts["redone"] > 0
        assert incident["seconds_lost"] > 0
