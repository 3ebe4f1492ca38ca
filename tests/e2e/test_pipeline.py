"""A job in stages as its owner sees it: its axes and its bubble on the page and on the terminal, a killed rank, done to the last step."""

from __future__ import annotations

import os
import signal

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

STEPS = 120
STAGED = {"pipeline": 2, "pipeline_schedule": "zero_bubble"}


def test_a_job_in_stages_falls_back_to_its_checkpoint_and_is_done(stack: Stack) -> None:
    job_id = stack.submit(tiny_gpt("staged", steps=STEPS, checkpoint_every=20, parallelism=STAGED))
    stack.wait_for_step(job_id, 25)
    assert stack.job(job_id)["strategy"] == "ddp, pipeline 2"
    os.kill(stack.job(job_id)["ranks"][1]["pid"], signal.SIGKILL)

    done = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert (done["state"], done["restarts"]) == ("completed", 1), done
    curve = stack.raw_curve(job_id)
    assert {step for step, _ in curve} == set(range(1, STEPS + 1))
    assert curve[-1][1] < curve[0][1] - 1

    bubble = stack.get(f"/training/jobs/{job_id}/performance")["bubble"]
    assert 0 < bubble["measured"] < 1
    shown = stack.paceline("show", job_id, "--server", stack.server, "--api-key", stack.api_key)
    assert "2 ranks, ddp, pipeline 2," in shown.stdout, shown.stderr + shown.stdout
    assert f"by the formula: {bubble['text']}" in shown.stdout
