from __future__ import annotations

from pathlib import Path

import torch

from paceline.training.builtin import builtin_task
from paceline.training.data.digits import load
from paceline.training.models.resnet.config import ResnetModel
from paceline.training.schema.data import Digits
from paceline.training.task import Dataset


def test_all_real_digits_are_there_split_and_scaled() -> None:
    train, held_out = load(Digits(holdout=0.2))
    assert (len(train) + len(held_out), len(held_out)) == (1797, 359)
    images, labels = train.batch(torch.arange(len(train)), None)
    assert images.shape[1:] == (64,)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert set(labels.tolist()) == set(range(10))


def test_the_split_is_the_same_each_time() -> None:
    first, second = load(Digits()), load(Digits())
    assert torch.equal(first[1].images, second[1].images)


def test_a_resnet_gets_them_enlarged_in_three_colours(tmp_path: Path) -> None:
    task = builtin_task(ResnetModel(depth=8, width=4), Digits(), tmp_path)
    assert isinstance(task.train, Dataset)
    batch = task.train.batch(torch.arange(len(task.train)), None)
    assert batch[0].shape == (1438, 3, 32, 32)
    assert (abs(batch[0].mean()) < 0.01, abs(batch[0].std() - 1) < 0.01) == (True, True)
    loss, means = task.loss(task.model, tuple(part[:8] for part in batch))
    assert loss.isfinite()
    assert set(means) == {"accuracy"}
