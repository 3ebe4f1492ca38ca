"""The tracker in the real Accelerator, on two ranks: what is logged are the curves, value by value."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.paceline.documented import block_below
from tests.paceline.job_ranks import run_job

pytestmark = pytest.mark.slow("the trainer of a library, in interpreters that import it")

TRAINS = """
import json
import torch
from accelerate import Accelerator
from paceline.integrations.accelerate import PacelineTracker

accelerator = Accelerator(cpu=True, log_with=PacelineTracker())
accelerator.init_trackers("digits", config={"lr": 0.125, "optimizer": {"name": "sgd"}})
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.125))
losses = []
for step in range(1, 6):
    loss = model(torch.randn(8, 4)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
    accelerator.log({"train_loss": loss, "lr": 0.125, "note": "text"}, step=step)
accelerator.log({"val_loss": 0.25, "nested": {"own": 1}})
assert not accelerator.is_main_process or accelerator.get_tracker("paceline").tracker.name == "job1"
accelerator.end_training()
print("LOSSES " + json.dumps(losses))
"""


@pytest.mark.timeout(180)
def test_what_the_accelerator_logs_are_the_curves(tmp_path: Path) -> None:
    ranks = run_job(tmp_path, TRAINS, world_size=2)
    (losses,) = [json.loads(line.removeprefix("LOSSES ")) for line in ranks[0].stdout.splitlines() if line.startswith("LOSSES ")]
    told = [(step, {"loss": loss, "learning_rate": 0.125}) for step, loss in enumerate(losses, start=1)]
    assert ranks[0].points == [*told, (5, {"eval_loss": 0.25, "nested/own": 1.0})]
    (config,) = ranks[0].events_of("run_configured")
    assert config["config"] == {"lr": 0.125, "optimizer/name": "sgd"}
    assert (ranks[1].points, ranks[1].events) == ([], [])


@pytest.mark.timeout(180)
def test_the_lines_of_the_page_record_the_loss(tmp_path: Path) -> None:
    completed = "import torch\nloss, step = torch.tensor(0.5), 7"
    (left,) = run_job(tmp_path, "\n".join([completed, block_below("Accelerate"), "accelerator.end_training()"]))
    assert left.points == [(7, {"loss": 0.5})]
    assert [event["config"] for event in left.events_of("run_configured")] == [{"lr": 1e-3}]
