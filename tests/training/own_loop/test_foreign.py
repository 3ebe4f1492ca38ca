"""Checkpoints that torch.save wrote, in other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.foreign import read_foreign
from paceline.training.own_loop.trainer import Trainer
from tests.launched import run_launched
from tests.training.own_loop.loops import CLIP, Small, bare, build, optimizer_of, own_batch, rows, whole


def save_bare(path: Path, updates: int, **keys: Any) -> None:
    """Train in bare torch, as `bare` does, and save as many scripts do, from within DDP."""
    model = build()
    optimizer = optimizer_of(model)
    for update in range(updates):
        inputs, targets = rows(update)
        F.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        optimizer.zero_grad()
        for group in optimizer.param_groups:
            group["lr"] *= 0.5 if update % 2 else 1.0
    wrapped = {f"module.{name}": value for name, value in model.state_dict().items()}
    torch.save({"epoch": 0, "global_step": updates, "model_state_dict": wrapped, "optimizer_state_dict": optimizer.state_dict()}, path)


def go_on(path: str, strategy: str) -> tuple[int, list[float], dict[str, list[float]]]:
    with Trainer(Small(), strategy=strategy, gradient_clip_val=CLIP) as trainer:
        optimizer = optimizer_of(trainer.model)
        start = trainer.load_checkpoint(optimizer, path)
        losses = []
        for step in range(start, start + 1):
            update = trainer.train_step(own_batch(step, 1), optimizer, F.mse_loss, step)
            assert update is not None
            losses.append(update.loss)
        return start, losses, whole(trainer.model)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_go_on_from_what_one_process_of_bare_torch_saved(strategy: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint_epoch_0.pt"
    save_bare(path, 3)
    expected = bare(4)
    for start, losses, parameters in run_launched(go_on, 2, str(path), strategy):
        assert start == 3
        assert losses == pytest.approx(expected.losses[3:], rel=1e-5)
        for name, values in expected.parameters.items():
            assert parameters[name] == pytest.approx(values, abs=1e-5)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    with pytest.raises(InvalidInputError, match=r"no checkpoint .* give a file of torch.save"):
        read_foreign(path)
    for damaged in (b"\x80\x02.", b"", b"not a checkpoint", b"PK\x03\x04 torn"):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInputError, match=r"cannot be read as tensors \(.+\); save state_dicts"):
            read_foreign(path)
    torch.save(Small(), path)
    with pytest.raises(
        InvalidInputError, match=r"model.pt holds a [\w.]+\.Small, which is read by running code; save state_dicts and numbers"
    ):
        read_foreign(path)
    torch.save({"epoch": 3}, path)
    with pytest.raises(InvalidInputError, match=r"holds no model: .* it has .'epoch'"):
        read_foreign(path)
    torch.save({"state_dict": {"other.weight": torch.ones(2)}}, path)
    with Trainer(Small()) as trainer, pytest.raises(InvalidInputError, match=r"does not fit this model: .*other.weight"):
        trainer.load_checkpoint(optimizer_of(trainer.model), path)
    found = {"model": trainer.model.state_dict(), "optimizer": torch.optim.SGD([torch.ones(1)], lr=1.0).state_dict()}
    torch.save(found, path)
    with Trainer(Small()) as trainer, pytest.raises(InvalidInputError, match=r"optimizer's state does not fit this optimizer"):
        trainer.load_checkpoint(optimizer_of(trainer.model), path)


def two_groups(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Weight decay for matrices alone, as jobs and `scripts/production_train.py` have it."""
    weights, biases = [p for p in model.parameters() if p.ndim >= 2], [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=1e-3)


def averages(optimizer: torch.optim.Optimizer, model: torch.nn.Module) -> dict[str, list[float]]:
    """The optimizer's first moments of the parameters that were updated, whole, by name."""
    found = dict[str, list[float]]()
    for name, parameter in model.named_parameters():
        if value := optimizer.state.get(parameter):
            whole_value = value["exp_avg"].full_tensor() if isinstance(value["exp_avg"], DTensor) else value["exp_avg"]
            found[name.removeprefix("module.")] = whole_value.flatten().tolist()
    return found


def moments(strategy: str, path: str) -> dict[str, list[float]]:
    with Trainer(Small(), strategy=strategy) as trainer:
        optimizer = two_groups(trainer.model)
        trainer.load_checkpoint(optimizer, path)
        assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
        return averages(optimizer, trainer.model)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_an_optimizer_over_all_parameters_fits_one_that_has_groups_of_them(strategy: str, tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    model = build()
    optimizer = torch.optim.AdamW(model.parameters())
    inputs, targets = rows(0)
    F.mse_loss(model(inputs), targets).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    expected = averages(optimizer, model)
    assert len(expected) > 2
    for found in run_launched(moments, 2, strategy, str(path)):
        assert found == expected


def test_the_state_of_another_kind_of_optimizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    model = build()
    torch.save({"model": model.state_dict(), "optimizer": torch.optim.SGD(model.parameters(), lr=0.1).state_dict()}, path)
    with (
        Trainer(Small()) as trainer,
        pytest.raises(InvalidInputError, match=r"does not fit this optimizer \(AdamW has no dampening, momentum"),
    ):
        trainer.load_checkpoint(two_groups(trainer.model), path)
