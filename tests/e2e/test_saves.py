"""Jobs that save, as their owners see it: behind the steps, each checkpoint with what it cost and restored to the same numbers; and at the time limit."""

from __future__ import annotations

import pytest

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

STEPS, EVERY = 120, 40
#: A job counts its time from when it has its slots: long enough for two ranks to come to steps on a busy machine.
LIMIT_SECONDS = 8


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_each_checkpoint_says_what_it_cost_and_can_be_continued_from(stack: Stack, strategy: str) -> None:
    job_id = stack.submit(tiny_gpt(f"behind-{strategy}", steps=STEPS, checkpoint_every=EVERY, parallelism={"strategy": strategy}))
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert done["state"] == "completed", done
    saved = {row["step"]: row for row in stack.get(f"/checkpoints/jobs/{job_id}")["items"]}
    assert sorted(saved) == [EVERY, 2 * EVERY, STEPS]
    assert all(row["stall_seconds"] > 0 and row["write_seconds"] > 0 for row in saved.values())
    assert [row["slowdown"] is None for _, row in sorted(saved.items())] == [False, False, True]  # the end waits for its own
    access = ("--server", stack.server, "--api-key", stack.api_key)
    assert f"step {STEPS}: training waited" in stack.paceline("show", job_id, *access).stdout
    assert "WRITTEN IN" in stack.paceline("checkpoints", job_id, *access).stdout

    response = stack.client.post(f"/checkpoints/{saved[2 * EVERY]['id']}/restore", json={})
    assert response.status_code == 201, response.text
    again = stack.wait_for_state(response.json()["id"], "completed", "failed", timeout=120)
    assert again["state"] == "completed", again
    expected = {step: loss for step, loss in stack.raw_curve(job_id) if step > 2 * EVERY}
    assert dict(stack.raw_curve(again["id"])) == pytest.approx(expected, rel=1e-5)


def test_a_model_saves_at_its_time_limit(stack: Stack) -> None:
    job_id = stack.submit(tiny_gpt("limited", steps=100_000, time_limit=LIMIT_SECONDS))
    job = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert (job["state"], job["end_reason"], job["failure"], job["restarts"]) == ("failed", "time_limit", None, 0), job
    assert LIMIT_SECONDS <= job["ran_seconds"] < 10 * LIMIT_SECONDS
    (saved,) = stack.get(f"/checkpoints/jobs/{job_id}")["items"]
    assert stack.wait_for_step(job_id, saved["step"]) == saved["step"] > 0
    assert [step for step, _ in stack.raw_curve(job_id)] == list(range(1, saved["step"] + 1)), "a step that was taken is not saved"
