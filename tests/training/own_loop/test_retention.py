"""Which checkpoints of an own loop stay, and which one is the best."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from torch.nn import functional as F

from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.retention import BEST, CheckpointRetention, Saved, read_retention
from paceline.training.own_loop.saves import newest_first
from paceline.training.own_loop.trainer import Trainer
from paceline.training.saving import manifest as manifests
from tests.training.own_loop.loops import Small, optimizer_of, own_batch


def saved(**values: float | None) -> list[Saved]:
    return [Saved(name, step, 1, value) for step, (name, value) in enumerate(values.items())]


@pytest.mark.parametrize(
    ("rule", "marked", "deleted"),
    [
        (CheckpointRetention(), None, ""),
        (CheckpointRetention(keep_last=1, keep_best=0), None, "abc"),
        (CheckpointRetention(keep_last=1), None, "ac"),
        (CheckpointRetention(keep_last=1, mode="max"), None, "abc"),
        (CheckpointRetention(keep_last=1, keep_best=2), None, "c"),
        (CheckpointRetention(keep_last=2, keep_best=0), "a", "b"),
    ],
)
def test_the_newest_the_best_and_the_marked_one_stay(rule: CheckpointRetention, marked: str | None, deleted: str) -> None:
    assert [each.name for each in rule.to_delete(saved(a=3.0, b=1.0, c=None, d=5.0), marked)] == list(deleted)


def test_the_newest_finite_one_stays() -> None:
    spoilt = [Saved(name, step, 1, None, finite=step < 3) for step, name in enumerate("abcdef")]
    assert [each.name for each in CheckpointRetention(keep_last=2).to_delete(spoilt, None)] == ["a", "b", "d"]


def test_what_was_just_saved_stays_where_training_has_gone_back_to_an_earlier_step() -> None:
    best, left, branch = Saved("best", 800, 1, 0.5), Saved("left", 1000, 1, 9.0), Saved("branch", 850, 2, 0.6)
    assert CheckpointRetention(keep_last=1).to_delete([best, left, branch], "best") == [left]


def test_after_going_back_the_newest_is_not_that_of_the_most_steps(tmp_path: Path) -> None:
    for name in ("step-800.g1", "step-1000.g1", "step-850.g2", "step-900.g2"):
        (tmp_path / name).mkdir()
    assert [folder.name for folder in newest_first(tmp_path)] == ["step-900.g2", "step-850.g2", "step-1000.g1", "step-800.g1"]


def test_of_equal_ones_the_newest_is_the_best() -> None:
    assert [each.name for each in CheckpointRetention().best_first(saved(a=1.0, b=1.0, c=None))] == ["b", "a"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ((0, 1, "loss", "min"), "keep_last=0 is less than 1"),
        ((1, -1, "loss", "min"), "keep_best=-1 is negative"),
        (("2", 1, "loss", "min"), "keep_last='2' is of type str"),
        ((1, 0.5, "loss", "min"), "keep_best=0.5 is of type float"),
        ((1, 1, "loss", "least"), "best_mode='least' is not known; use min"),
    ],
)
def test_what_cannot_be_kept_is_refused(options: tuple[Any, ...], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        read_retention(*options)


def save_each(directory: Path, losses: list[float], **options: Any) -> list[str]:
    """Train and save after each step, with these losses; the names of what is left."""
    with Trainer(Small(), checkpoint_dir=directory, best_metric="eval_loss", **options) as trainer:
        optimizer = optimizer_of(trainer.model)
        trainer.load_checkpoint(optimizer)
        for loss in losses:
            trainer.train_step(own_batch(0, 1), optimizer, F.mse_loss, trainer.next_step)
            trainer.save_checkpoint(optimizer, metrics={"eval_loss": loss})
    return sorted(path.name for path in directory.glob("step-*"))


def test_after_a_nan_the_last_checkpoint_from_before_it_stays_and_is_named_after_a_restart(tmp_path: Path) -> None:
    """Without metrics: only checkpoints full of NaN were left, and one of them was loaded without a word."""
    settings: dict[str, Any] = {"checkpoint_dir": tmp_path, "keep_last": 2}
    with Trainer(Small(), **settings) as trainer:
        optimizer = optimizer_of(trainer.model)
        for step in range(40):
            inputs, targets = own_batch(step, 1)
            trainer.train_step((inputs, targets * (float("nan") if step == 10 else 1.0)), optimizer, F.mse_loss, step)
            if trainer.next_step % 5 == 0:
                trainer.save_checkpoint(optimizer)
    assert sorted(path.name for path in tmp_path.glob("step-*")) == ["step-10.g1", "step-35.g1", "step-40.g1"]
    with Trainer(Small(), **settings) as trainer:
        optimizer = optimizer_of(trainer.model)
        with pytest.warns(UserWarning, match=r"step-40\.g1 has parameters that are NaN or infinite.*load .*step-10\.g1"):
            trainer.load_checkpoint(optimizer)
        assert trainer.load_checkpoint(optimizer, tmp_path / "step-10.g1") == 10


def test_the_best_is_known_and_loaded_after_a_restart(tmp_path: Path) -> None:
    assert save_each(tmp_path, [3.0, 1.0, 2.0, float("nan")], keep_last=1) == ["step-2.g1", "step-4.g1"]
    assert os.readlink(tmp_path / BEST) == "step-2.g1"
    assert save_each(tmp_path, [4.0], keep_last=1) == ["step-2.g1", "step-5.g2"]
    assert manifests.read(tmp_path / "step-5.g2").best == 1.0
    assert save_each(tmp_path, [0.5], keep_last=1) == ["step-6.g3"]
    with Trainer(Small()) as trainer:
        assert trainer.load_checkpoint(optimizer_of(trainer.model), tmp_path / BEST) == 6
