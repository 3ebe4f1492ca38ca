"""What a stack does when a rank dies: it says why, and goes on from its newest checkpoint or, in the save of a pause, loses no step."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack, wait_until
from tests.faults import faulty_job

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

TIMEOUT_SECONDS = 120.0
#: Added to the job's code: rank 1 dies in the first save there is, whatever its step.
DIES_SAVING = """
if (RANK, GENERATION) == (1, 1):
    FileSystemWriter.write_data = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_rank_costs_a_restart_from_the_newest_checkpoint(stack: Stack) -> None:
    job_id = stack.submit(tiny_gpt("killed", steps=150, checkpoint_every=20, fault_tolerance={"recovery": "restart"}))
    wait_until("a checkpoint", lambda: stack.get(f"/checkpoints/jobs/{job_id}")["items"], 60)
    victim = next(rank for rank in stack.job(job_id)["ranks"] if rank["rank"] == 1)
    os.kill(victim["pid"], signal.SIGKILL)

    done = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert (done["state"], done["restarts"], done["generation"]) == ("completed", 1, 2), done
    resumed_at = done["generations"][1]["start_step"]
    assert resumed_at >= 20
    assert resumed_at % 20 == 0
    assert {step for step, _ in stack.raw_curve(job_id)} == set(range(1, 151))
    exited = [event for event in stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"] if event["type"] == "job.state"]
    assert any("SIGKILL" in event["cause"] and "rank 1" in event["cause"] for event in exited), exited


def test_a_rank_killed_in_the_save_of_a_pause_costs_no_step(stack: Stack, tmp_path: Path) -> None:
    spec = faulty_job(tmp_path, steps=100_000, fault_tolerance={"recovery": "close_up", "max_restarts": 0})
    code = tmp_path / "faulty_task.py"
    code.write_text(code.read_text() + DIES_SAVING)
    job_id = stack.submit(spec)
    stack.wait_for_step(job_id, 20, timeout=TIMEOUT_SECONDS)
    stack.change("PUT", job_id, "pause")
    paused = stack.wait_for_state(job_id, "paused", "failed", timeout=TIMEOUT_SECONDS)
    assert (paused["state"], paused["restarts"], paused["generation"]) == ("paused", 0, 2), paused
    saved = paused["progress"]["last_checkpoint_step"]
    assert saved >= 20
    # What the first generation wrote last may still be on its way when the second one has paused.
    wait_until("the last step's record", lambda: stack.job(job_id)["progress"]["step"] == saved, TIMEOUT_SECONDS)
    assert sorted(step for step, _ in stack.raw_curve(job_id)) == list(range(1, saved + 1))
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    assert (incident["action"], incident["steps_lost"]) == ("closed_up", 0), incident
    stack.change("DELETE", job_id)


def test_a_failure_names_the_rank_that_caused_it_not_its_victims(stack: Stack, page: Page) -> None:
    spec = tiny_gpt(
        "broken",
        steps=50,
        model=None,
        data=None,
        entrypoint="broken_task:make_task",
        environment={"working_directory": str(Path(__file__).parent / "user_code")},
        fault_tolerance={"max_restarts": 0},
    )
    job_id = stack.submit(spec)
    failed = stack.wait_for_state(job_id, "failed", "completed", timeout=60)
    failure = failed["failure"]
    assert failure["rank"] == 1
    assert failure["exception"].endswith("ZeroDivisionError")
    assert "the sample of doom" in failure["message"]
    assert any("about to divide" in line for line in failure["last_lines"])
    assert [victim["rank"] for victim in failure["victims"]] == [0]

    page.goto(stack.login_link())
    page.wait_for_url("**/jobs*")
    page.goto(f"{stack.server}/jobs/{job_id}")
    expect(page.get_by_text("the sample of doom", exact=False).first).to_be_visible()
    expect(page.get_by_text("rank 1", exact=False).first).to_be_visible()


def test_a_failed_job_makes_submit_follow_exit_10(stack: Stack, tmp_path: Path) -> None:
    spec = tmp_path / "job.json"
    spec.write_text(
        '{"name": "no-cifar", "model": {"kind": "resnet", "depth": 8}, "data": {"kind": "cifar10", "path": "/nonexistent"},'
        ' "training": {"steps": 5, "global_batch_size": 8}}'
    )
    done = stack.paceline("submit", str(spec), "--follow", "--server", stack.server, "--api-key", stack.api_key)
    assert done.returncode == 10, done.stdout + done.stderr
    assert "/nonexistent" in done.stdout + done.stderr


def test_cancel_stops_a_job_soon_after_its_grace_even_if_its_ranks_ignore_sigterm(stack: Stack) -> None:
    code = Path(__file__).parent / "user_code"
    job_id = stack.submit(
        {
            "name": "stubborn",
            "resources": {"nodes": 2},
            "script": {"path": "stubborn.py", "grace_seconds": 1},
            "environment": {"working_directory": str(code)},
        }
    )
    wait_until(
        "both ranks to ignore SIGTERM",
        lambda: len([line for line in stack.get(f"/training/jobs/{job_id}/logs")["items"] if "ignoring SIGTERM" in line["text"]]) == 2,
        60,
    )
    stack.wait_for_state(job_id, "running")  # the last change of its own, or the cancel may come too late for the revision that it names
    stack.change("DELETE", job_id)
    cancelled = stack.wait_for_state(job_id, "cancelled", timeout=15)  # half the grace that a script has by default
    assert {rank["signal"] for rank in cancelled["ranks"]} == {"SIGKILL"}
