from __future__ import annotations

import torch

from paceline.training.data.digits import load
from paceline.training.schema.data import Digits


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
