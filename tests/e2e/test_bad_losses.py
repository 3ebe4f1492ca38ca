"""NaN on the whole way: from the loss in a user's code to what the job's history, state and page say of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack
from tests.parallelism.bad_losses import MICRO_BATCH, NAN_STEP, bad_job, bad_samples

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
SCRIPT = """
import time
import paceline

for step in range(1, 2000):
    paceline.log(step, loss=1.0 if step < 40 else float("nan"))
    time.sleep(0.02)
"""

OWN_LOOP = """
import sys
import paceline
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
with paceline.Trainer(model, on_nan=sys.argv[1]) as trainer:
    optimizer = torch.optim.AdamW(trainer.model.parameters())
    for step in range(60):
        batch = torch.randn(8, 4)
        if step == 39 and paceline.world().rank == 1:
            batch[3, 2] = float("nan")
        trainer.train_step(batch, optimizer, lambda outputs, inputs: (outputs - 1).square().mean(), step)
    assert all(value.isfinite().all() for value in trainer.model.state_dict().values())
"""


def told(stack: Stack, job_id: str) -> list[dict[str, Any]]:
    items = stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"]
    return [event for event in items if event["type"].startswith("job.loss_")]


def test_a_job_goes_back_once_leaves_the_bad_step_out_and_completes(stack: Stack) -> None:
    spec = bad_job(resources={"nodes": 2}, fault_tolerance={"on_nan": "roll_back"}, environment={"working_directory": str(ROOT)})
    job = stack.wait_for_state(stack.submit(spec), "completed", "failed")
    assert (job["state"], job["generation"], job["restarts"]) == ("completed", 2, 1), job["failure"]
    events = told(stack, job["id"])
    assert [(event["type"], event["data"]["step"], event["data"]["act"]) for event in events] == [
        ("job.loss_not_finite", NAN_STEP, "roll_back"),
        ("job.loss_not_finite", NAN_STEP, "skip_update"),
    ]
    assert all((event["data"]["micro_batches"], event["data"]["sample_ids"]) == ([MICRO_BATCH], bad_samples(NAN_STEP)) for event in events)
    assert job["progress"]["not_finite_step"] is None
    assert job["progress"]["bad_loss"]["done"] == "the job had gone back because of it, and the update was skipped now"
    (incident,) = stack.get(f"/training/jobs/{job['id']}/incidents")
    assert (incident["cause"], incident["outcome"]) == ("rolled_back", "recovered")


def test_a_script_is_stopped_at_nan(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    spec = {
        "name": "nan-script",
        "script": {"path": "train.py"},
        "environment": {"working_directory": str(tmp_path)},
        "fault_tolerance": {"on_nan": "stop"},
    }
    job = stack.wait_for_state(stack.submit(spec), "completed", "failed")
    assert (job["state"], job["end_reason"], job["restarts"]) == ("failed", "loss_not_finite", 0)
    assert job["progress"]["step"] < 1000
    assert (job["failure"]["kind"], job["failure"]["rank"]) == ("loss_not_finite", 0)
    assert job["failure"]["message"].startswith("the loss of step 40 is NaN")
    assert [event["data"]["act"] for event in told(stack, job["id"])] == ["stop"]


@pytest.mark.parametrize(("policy", "of_job"), [("skip_update", "stop"), ("stop", "warn")])
def test_a_loop_with_our_trainer_acts_by_itself_and_its_job_does_not_judge_it_again(
    stack: Stack, tmp_path: Path, policy: str, of_job: str
) -> None:
    (tmp_path / "train.py").write_text(OWN_LOOP)
    spec = {
        "name": "own-loop",
        "script": {"path": "train.py", "args": [policy]},
        "resources": {"nodes": 2},
        "environment": {"working_directory": str(tmp_path)},
        "fault_tolerance": {"on_nan": of_job, "max_restarts": 2},
    }
    job = stack.wait_for_state(stack.submit(spec), "completed", "failed")
    assert job["restarts"] == 0, job["failure"]
    assert [(event["data"]["step"], event["data"]["act"]) for event in told(stack, job["id"])] == [(40, policy)]
    notice = job["progress"]["bad_loss"]
    assert (notice["step"], notice["act"]) == (40, policy)
    if policy == "skip_update":
        assert (job["state"], job["progress"]["not_finite_step"]) == ("completed", None), job["failure"]
    else:
        assert (job["state"], job["end_reason"]) == ("failed", "loss_not_finite"), job["failure"]
        assert job["failure"]["message"].startswith("the loss of step 40 is NaN")
    lines = [line["text"] for line in stack.get(f"/training/jobs/{job['id']}/logs", limit=1000)["items"]]
    assert sum("the batch of rank 1 at step 40 has a loss of nan" in line for line in lines) == 1, lines
