"""The logger in Lightning's real Trainer and in Fabric: what they log are the curves, value by value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.paceline.documented import block_below
from tests.paceline.job_ranks import JOB, run_job

pytestmark = [pytest.mark.slow("the trainer of a library, in interpreters that import it"), pytest.mark.timeout(180)]

#: `Kept` is another logger beside Paceline's: it keeps what Lightning gives to loggers.
MODULE = """
import json
import lightning as L
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger

class Kept(CSVLogger):
    told = []
    def log_metrics(self, metrics, step=None):
        self.told.append((step, dict(metrics)))

class Line(L.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Linear(width, 1)
    def training_step(self, batch, index):
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log_dict({"train_loss": loss, "own": loss * 2})
        return loss
    def validation_step(self, batch, index):
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.125)

L.seed_everything(0, verbose=False)
inputs = torch.randn(48, 8)
pairs = torch.utils.data.TensorDataset(inputs, inputs.sum(1, keepdim=True))
data, held_out = torch.utils.data.DataLoader(pairs, batch_size=4), torch.utils.data.DataLoader(pairs, batch_size=24)
settings = dict(accelerator="cpu", max_epochs=2, log_every_n_steps=2, enable_progress_bar=False, enable_model_summary=False)
"""
BY_ONE_LINE = f"""{MODULE}
from paceline.integrations.lightning import PacelineLogger
loggers = [PacelineLogger(), Kept("csv")]
monitor = LearningRateMonitor()
trainer = L.Trainer(devices=2, strategy="ddp", accumulate_grad_batches=3, logger=loggers, callbacks=[monitor], **settings)
trainer.fit(Line(), data, held_out)
print("LOGGED " + json.dumps([Kept.told, trainer.checkpoint_callback.dirpath, trainer.global_step, len(trainer.loggers)]))
"""
NAMES = {"train_loss": "loss", "lr-SGD": "learning_rate", "val_loss": "eval_loss", "own": "own", "epoch": "epoch"}


def logged(output: str) -> Any:
    (line,) = [line for line in output.splitlines() if line.startswith("LOGGED ")]
    return json.loads(line.removeprefix("LOGGED "))


def test_what_the_trainer_logs_are_the_curves(tmp_path: Path) -> None:
    ranks = run_job(tmp_path, BY_ONE_LINE, world_size=2)
    told, folder, steps, loggers = logged(ranks[0].stdout)
    assert ranks[0].points == [(step, {NAMES[name]: value for name, value in values.items()}) for step, values in told]
    names = [sorted(values) for _, values in ranks[0].points]
    assert [sum(name in one for one in names) for name in ("loss", "eval_loss", "own")] == [2, 2, 2]
    assert (steps, max(step for step, _ in ranks[0].points), loggers) == (4, 3, 2)  # Lightning numbers its steps from 0
    assert folder == str(tmp_path / "paceline" / JOB / "checkpoints")
    (config,) = ranks[0].events_of("run_configured")
    assert config["config"] == {"width": 8}
    assert (ranks[1].points, ranks[1].events) == ([], [])


def test_the_lines_of_the_page_record_what_the_module_logs(tmp_path: Path) -> None:
    """Lightning gives loggers every fiftieth step, unless it is told otherwise."""
    completed = "module, data = Line(), torch.utils.data.DataLoader(pairs, batch_size=1)"
    (left,) = run_job(tmp_path, "\n".join([MODULE, completed, block_below("By hand, and for Fabric")]))
    assert [(step, sorted(values)) for step, values in left.points] == [(step, ["epoch", "loss", "own"]) for step in (49, 99)]


BY_ITSELF = f"""{MODULE}
trainer = L.Trainer(devices=1, logger=Kept("csv"), limit_val_batches=0, **settings)
trainer.fit(Line(), data)
found = [type(logger).__name__ for logger in trainer.loggers]
silent = L.Trainer(devices=1, logger=False, limit_val_batches=0, **settings)
silent.fit(Line(), data)
print("LOGGED " + json.dumps([Kept.told, found, trainer.checkpoint_callback.dirpath, len(silent.loggers)]))
"""


@pytest.mark.parametrize(("ranks", "names"), [(1, {"samples_per_second"}), (2, {"samples_per_second", "train/device/samples_per_sec"})])
def test_throughput_is_that_of_all_ranks(tmp_path: Path, ranks: int, names: set[str]) -> None:
    """Of a single rank Lightning logs it under the name of a device alone."""
    monitored = f"""{MODULE}
from lightning.pytorch.callbacks import ThroughputMonitor
from paceline.integrations.lightning import PacelineLogger
monitor = ThroughputMonitor(lambda batch: len(batch[0]), window_size=2)
trainer = L.Trainer(devices={ranks}, strategy="ddp", logger=PacelineLogger(), callbacks=[monitor], **settings)
trainer.fit(Line(), data)
"""
    leader = run_job(tmp_path, monitored, world_size=ranks)[0]
    assert {name for _, values in leader.points for name in values if "samples_per" in name} == names


def test_in_a_job_a_trainer_that_logs_has_it_by_itself(tmp_path: Path) -> None:
    """The entry point of the installed package adds it, in a program that does not know of Paceline."""
    (left,) = run_job(tmp_path, BY_ITSELF)
    told, found, folder, silent = logged(left.stdout)
    assert (found, silent) == (["Kept", "PacelineLogger"], 0)
    assert len(told) == 12
    assert left.points == [(step, {NAMES[name]: value for name, value in values.items()}) for step, values in told]
    assert folder.startswith("csv/lightning_logs/")


FABRIC = """
import json
import lightning as L
import torch
from paceline.integrations.lightning import PacelineLogger

fabric = L.Fabric(accelerator="cpu", devices=1, loggers=PacelineLogger())
fabric.launch()
fabric.log_dict({"train/loss": torch.tensor(0.5), "val/loss": 0.25}, step=7)
fabric.log("mine", 3)
fabric.logger.finalize("success")
"""


def test_fabric_logs_with_it(tmp_path: Path) -> None:
    (left,) = run_job(tmp_path, FABRIC)
    assert left.points == [(7, {"loss": 0.5, "eval_loss": 0.25}), (8, {"mine": 3.0})]
