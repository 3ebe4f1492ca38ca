"""A job whose ranks hold parts of the model, as its owner sees it: its axes on the page and on the terminal, paused, resumed, done to the last step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

TENSOR = {"strategy": "ddp", "tensor": 2}
CONTEXT = {"strategy": "ddp", "context": 2}
FSDP = {"strategy": "fsdp", "activation_checkpointing": "selective"}


@pytest.mark.parametrize(
    ("plan", "words", "steps"),
    [(FSDP, "fsdp, shard 2", 300), (TENSOR, "ddp, tensor 2", 100), (CONTEXT, "ddp, context 2", 300)],
)
def test_a_job_in_parts_pauses_resumes_and_is_done(stack: Stack, plan: dict[str, Any], words: str, steps: int) -> None:
    job_id = stack.submit(tiny_gpt("in-parts", steps=steps, parallelism=plan))
    stack.wait_for_step(job_id, 5)
    assert stack.job(job_id)["strategy"] == words
    stack.change("PUT", job_id, "pause")
    saved = stack.wait_for_state(job_id, "paused")["progress"]["last_checkpoint_step"]
    assert 5 <= saved < steps
    assert stack.wait_for_step(job_id, saved) == saved  # which is written five times a second at most

    stack.change("PUT", job_id, "resume")
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert done["state"] == "completed", done
    curve = stack.raw_curve(job_id)
    assert [step for step, _ in curve] == list(range(1, steps + 1))
    assert curve[-1][1] < curve[0][1] - 1
    shown = stack.paceline("show", job_id, "--server", stack.server, "--api-key", stack.api_key)
    assert f"2 ranks, {words}," in shown.stdout, shown.stderr + shown.stdout
