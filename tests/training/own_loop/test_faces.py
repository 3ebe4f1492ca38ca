"""The loops of the two editions of the multi-GPU framework run as they are written, with another import line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.faces import DistributedTrainer, EnhancedDistributedTrainer
from tests.event_files import read_scalars
from tests.own_loop_example import ROOT, environment
from tests.training.own_loop.loops import Small, optimizer_of, own_batch

#: The first edition's page; the loader is torch's, its sampler as under torchrun.
FIRST = """
import torch
from torch import nn
from paceline import DistributedTrainer

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
criterion = nn.CrossEntropyLoss()
inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
dataloader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long()), batch_size=8)

trainer = DistributedTrainer(model=model, strategy='fsdp', mixed_precision=True, gradient_accumulation_steps=2)

losses = []
for epoch in range(6):
    for step, batch in enumerate(dataloader):
        loss = trainer.train_step(batch=batch, optimizer=optimizer, criterion=criterion, step=step)
        losses.append(loss.item())
    if trainer.rank == 0:
        print(f"Epoch {epoch}, Loss: {loss:.4f}")
assert losses[-1] < 0.7 * losses[0], losses
trainer.cleanup()
print("first done")
"""

#: The second edition's page.
SECOND = """
import time
import torch
from torch import nn
import paceline
from paceline import DistributedMonitor, EnhancedDistributedTrainer

model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
criterion = nn.CrossEntropyLoss()
inputs = torch.randn(72, 4, generator=torch.Generator().manual_seed(0))
dataset = torch.utils.data.TensorDataset(inputs, (inputs.sum(1) > 0).long())

trainer = EnhancedDistributedTrainer(
    model=model,
    strategy='ddp',
    mixed_precision=True,
    gradient_accumulation_steps=4,
    gradient_clip_val=1.0,
    enable_activation_checkpointing=True,
    cpu_offload=False,
    checkpoint_dir='./checkpoints',
    log_dir='./logs',
)
optimizer = torch.optim.AdamW(trainer.model.parameters(), lr=1e-2)
dataloader = paceline.loader(dataset, batch_size=8)
monitor = DistributedMonitor(log_dir='./monitor')
best = float('inf')
for epoch in range(3):
    for step, batch in enumerate(dataloader):
        started = time.perf_counter()
        metrics = trainer.train_step(batch, optimizer, criterion, step)
        assert metrics['compute_time'] > 0 and metrics['communication_time'] >= 0
        monitor.log_training_step(
            loss=metrics['loss'], batch_size=8, step_time=time.perf_counter() - started, comm_time=metrics['communication_time']
        )
    trainer.save_checkpoint(epoch, optimizer, metrics['loss'], is_best=metrics['loss'] < best)
    best = min(best, metrics['loss'])
performance = trainer.get_performance_metrics()
print(f"Throughput: {performance['samples_per_second_per_gpu']:.1f} samples/s/GPU")
print(f"Overhead: {performance['communication_overhead_percent']:.1f}%")
assert performance['samples_per_second_per_gpu'] * trainer.world_size == performance['samples_per_second']
assert 0 <= performance['communication_overhead_percent'] < 100
trainer.close()
monitor.close()
print("second done")
"""
RUN_SECONDS = 240


def run(page: str, folder: Path, ranks: int) -> subprocess.CompletedProcess[str]:
    script = folder / "page.py"
    script.write_text(page)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)] if ranks > 1 else []
    command = [sys.executable, *torchrun, str(script)]
    found = environment(PYTHONPATH=str(ROOT))
    return subprocess.run(command, cwd=folder, env=found, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)


@pytest.mark.slow("ranks in interpreters of their own")
@pytest.mark.timeout(RUN_SECONDS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_first_page_runs_as_it_is_written(ranks: int, tmp_path: Path) -> None:
    done = run(FIRST, tmp_path, ranks)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("first done") == ranks
    assert done.stdout.count("Epoch 5, Loss:") == 1


@pytest.mark.slow("ranks in interpreters of their own")
@pytest.mark.timeout(RUN_SECONDS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_second_page_runs_as_it_is_written(ranks: int, tmp_path: Path) -> None:
    """Its epochs end in the middle of an update."""
    done = run(SECOND, tmp_path, ranks)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("second done") == ranks
    steps = [len(range(0, 72 * epochs, 8 * ranks)) for epochs in (1, 2, 3)]
    saved = {path.name for path in (tmp_path / "checkpoints").glob("step-*")}
    assert saved == {f"step-{step}.g1" for step in steps}
    assert os.readlink(tmp_path / "checkpoints" / "best") in saved
    for rank in range(ranks):
        part = "." if rank == 0 else f"rank-{rank}"
        assert "step_seconds" in read_scalars(tmp_path / "logs" / part)
        assert [point.step for point in read_scalars(tmp_path / "monitor" / part)["loss"]] == list(range(1, steps[-1] + 1))


def test_every_call_tells_its_loss_and_seconds_also_while_gradients_accumulate() -> None:
    with EnhancedDistributedTrainer(Small(), gradient_accumulation_steps=2) as trainer:
        optimizer = optimizer_of(trainer.model)
        with torch.no_grad():
            inputs, targets = own_batch(0, 2)
            first_loss = F.mse_loss(trainer.model(inputs), targets).item()
        first = trainer.train_step(own_batch(0, 2), optimizer, F.mse_loss, 0)
        second = trainer.train_step(own_batch(1, 2), optimizer, F.mse_loss, 1)
    assert first["loss"] == float(first) == pytest.approx(first_loss)
    assert "gradient_norm" not in first
    assert second["gradient_norm"] > 0
    for metrics in (first, second):
        assert 0 < metrics["compute_time"] <= metrics["step_time"]
        assert dict(metrics) == {name: metrics[name] for name in metrics}


def test_steps_of_another_loop_are_refused() -> None:
    with DistributedTrainer(Small()) as trainer:
        optimizer = optimizer_of(trainer.model)
        for step in (0, 1, 0, 1, 4):  # two epochs, then all batches so far
            trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, step)
        with pytest.raises(
            InvalidInputError,
            match="was given step 7 after 4; count the batches of each epoch from the same number on, 0 or 1, or all batches up to 5",
        ):
            trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, 7)


def test_a_loop_may_count_the_batches_of_an_epoch_from_1() -> None:
    """`enumerate(loader, 1)` was refused where the second epoch began."""
    with DistributedTrainer(Small(), strategy="single") as trainer:
        optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.1)
        for step in (1, 2, 3, 1, 2, 3):
            trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, step)
        with pytest.raises(InvalidInputError, match="was given step 2 after 3"):
            trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, 2)


def test_a_strategy_that_was_chosen_tells_why() -> None:
    with DistributedTrainer(Small(), strategy="auto") as trainer:
        assert trainer.strategy is trainer.trainer.strategy
        assert trainer.strategy is not None
        assert (trainer.strategy.name, bool(trainer.strategy.reason)) == ("single", True)
    with DistributedTrainer(Small(), strategy="single") as trainer:
        assert trainer.strategy is None


def test_what_is_no_model_is_refused_in_words() -> None:
    with pytest.raises(InvalidInputError, match=r"the model is of type int; give a torch\.nn\.Module"):
        DistributedTrainer(3)  # type: ignore[arg-type]


def test_a_misspelled_option_is_an_error_in_its_line() -> None:
    with pytest.raises(TypeError, match="gradient_clipping"):
        DistributedTrainer(Small(), gradient_clipping=1.0)
