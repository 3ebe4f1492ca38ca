"""`Trainer.find_batch_size`: the largest batch that fits, found by passes after which nothing has changed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from paceline.training.errors import InvalidInputError
from paceline.training.own_loop import trainer as trainers
from paceline.training.own_loop.batch_size import sizes_up_to
from paceline.training.own_loop.trainer import Trainer
from tests.launched import run_launched
from tests.training.own_loop.loops import whole

WIDTH = 1 << 10
SAMPLE_BYTES = 4 * WIDTH
#: In units of a sample's activations.
ROOM = 1_000


def test_sizes_are_powers_of_two_and_the_largest() -> None:
    assert sizes_up_to(1) == [1]
    assert sizes_up_to(8) == [1, 2, 4, 8]
    assert sizes_up_to(12) == [1, 2, 4, 8, 12]


class Wide(nn.Module):
    """What it keeps for backward is nearly all that it needs: some activations of WIDTH floats for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)  # refuses a batch of one

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.tanh(torch.sin(self.norm(inputs)))


def batch_of(samples: int) -> tuple[Tensor, Tensor]:
    return torch.ones(samples, WIDTH), torch.zeros(samples, WIDTH)


def found_in_little_memory(largest: int = 4096) -> int:
    """And nothing has changed by it."""
    vars(trainers)["memory_of"] = lambda place, device: ROOM * SAMPLE_BYTES // (1 + place.rank)
    with Trainer(Wide()) as trainer:
        optimizer = torch.optim.AdamW(trainer.model.parameters())
        before, drawn = whole(trainer.model), torch.get_rng_state()
        found = trainer.find_batch_size(batch_of, optimizer, F.mse_loss, largest=largest)
        assert whole(trainer.model) == before
        assert torch.get_rng_state().equal(drawn)
        assert not optimizer.state
        assert trainer.train_step(batch_of(4), optimizer, F.mse_loss, 0) is not None
    return found


def test_every_rank_takes_what_the_one_with_the_least_memory_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(trainers), "memory_of", None)
    alone = found_in_little_memory()
    assert 32 <= alone <= 512
    assert run_launched(found_in_little_memory, 2) == [alone // 2] * 2
    assert found_in_little_memory(largest=8) == 8


def test_what_cannot_be_looked_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainers, "memory_of", lambda place, device: 10)
    with Trainer(nn.Linear(WIDTH, WIDTH), gradient_accumulation_steps=2) as trainer:
        optimizer = torch.optim.AdamW(trainer.model.parameters())
        with pytest.raises(InvalidInputError, match="not even a batch of 1 fits"):
            trainer.find_batch_size(batch_of, optimizer, F.mse_loss, largest=2)
        with pytest.raises(InvalidInputError, match="largest=0 is less than 1"):
            trainer.find_batch_size(batch_of, optimizer, F.mse_loss, largest=0)
        trainer.train_step(batch_of(2), optimizer, F.mse_loss, 0)
        with pytest.raises(InvalidInputError, match="after 1 batches an update is under way"):
            trainer.find_batch_size(batch_of, optimizer, F.mse_loss, largest=2)
