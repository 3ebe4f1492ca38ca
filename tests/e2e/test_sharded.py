"""A sharded job as its owner sees it: its axes on the page and on the terminal, paused, resumed, done to the last step."""

from __future__ import annotations

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

STEPS = 300
FSDP = {"strategy": "fsdp", "activation_checkpointing": "selective"}


def test_a_sharded_job_pauses_resumes_and_is_done(stack: Stack) -> None:
    job_id = stack.submit(tiny_gpt("sharded", steps=STEPS, parallelism=FSDP))
    stack.wait_for_step(job_id, 5)
    assert stack.job(job_id)["strategy"] == "fsdp, shard 2"
    shown = stack.paceline("show", job_id, "--server", stack.server, "--api-key", stack.api_key)
    assert "2 ranks, fsdp, shard 2," in shown.stdout, shown.stderr + shown.stdout

    stack.change("PUT", job_id, "pause")
    paused = stack.wait_for_state(job_id, "paused")
    assert 5 <= paused["progress"]["step"] == paused["progress"]["last_checkpoint_step"] < STEPS

    stack.change("PUT", job_id, "resume")
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert done["state"] == "completed", done
    curve = stack.raw_curve(job_id)
    assert [step for step, _ in curve] == list(range(1, STEPS + 1))
    assert curve[-1][1] < curve[0][1] - 1
