"""`paceline.loader`: each sample once an epoch, equally many batches on each rank, and the same order after a resume on any number of ranks."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.loader import ShardedLoader, loader

SAMPLES = 10


class Items:
    """A data set of torch's form: sample n is n."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return index


class Batches:
    """A data set of Paceline's form, with a random number beside each sample."""

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        return indices, torch.rand(len(indices), generator=generator)


def of_rank(monkeypatch: pytest.MonkeyPatch, rank: int, world_size: int, dataset: Any = None, **options: Any) -> ShardedLoader:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", str(world_size))
    return loader(dataset or Items(), **{"batch_size": 2} | options)


def world(monkeypatch: pytest.MonkeyPatch, world_size: int, samples: int = 0, **options: Any) -> list[list[int]]:
    """What all ranks together get in each batch of an epoch, from place `samples` on."""
    ranks = [of_rank(monkeypatch, rank, world_size, **options) for rank in range(world_size)]
    for each in ranks:
        each.load_state_dict({"samples": samples})
    assert len({len(each) for each in ranks}) == 1
    batches = [[batch.tolist() for batch in each] for each in ranks]
    return [[sample for part in parts for sample in part] for parts in zip(*batches, strict=True)]


def test_an_epoch_has_each_sample_once_and_is_filled_up_from_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    line = [sample for batch in world(monkeypatch, 2) for sample in batch]
    assert len(line) == 12
    assert sorted(line[:SAMPLES]) == list(range(SAMPLES))
    following = [sample for batch in world(monkeypatch, 2, samples=12) for sample in batch]
    assert sorted(line[SAMPLES:] + following[:8]) == list(range(SAMPLES))
    assert following[:8] != line[:8], "every epoch has an order of its own"


def test_a_resume_goes_on_exactly_where_it_was_on_another_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = of_rank(monkeypatch, 0, 1, batch_size=4)
    batches = iter(alone)
    used = next(batches).tolist()
    saved = alone.state_dict()
    rest = [batch.tolist() for batch in batches]
    assert saved == {"samples": 4}
    assert [used, *rest] == world(monkeypatch, 2)
    assert rest == world(monkeypatch, 2, samples=4)
    assert alone.epoch == 1


def test_in_order_where_it_is_not_to_shuffle(monkeypatch: pytest.MonkeyPatch) -> None:
    assert world(monkeypatch, 1, shuffle=False) == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_workers_of_torch_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert world(monkeypatch, 1, num_workers=1) == world(monkeypatch, 1)


def test_an_epoch_begins_before_the_samples_of_all_its_batches_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The indices of every batch were computed before the first: six seconds at the start of each epoch of ImageNet."""
    computed: list[int] = []
    indices = ShardedLoader.indices
    monkeypatch.setattr(ShardedLoader, "indices", lambda self, start: (computed.append(start), indices(self, start))[1])
    batches = iter(of_rank(monkeypatch, 0, 1))
    assert len(next(batches)) == 2
    assert computed == [0]
    rest = [batch.tolist() for batch in batches]
    assert (computed, len(rest)) == ([0, 2, 4, 6, 8], 4)


#: The batches of two ranks of 2 samples each, with seed 5. A checkpoint keeps only a place in this line, so that it must never change.
LINE = [[3, 5, 6, 2], [7, 4, 1, 9], [0, 8, 4, 9]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_order_is_the_one_that_checkpoints_count_in(num_workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert world(monkeypatch, 2, seed=5, num_workers=num_workers) == LINE


def test_a_data_set_of_ours_is_augmented_the_same_way_after_a_resume(monkeypatch: pytest.MonkeyPatch) -> None:
    first = list(of_rank(monkeypatch, 0, 2, Batches()))
    resumed = of_rank(monkeypatch, 0, 2, Batches())
    resumed.load_state_dict({"samples": 4})
    for (indices, drawn), (again, drawn_again) in zip(first[1:], resumed, strict=True):
        assert indices.equal(again)
        assert drawn.equal(drawn_again)


def test_a_batch_may_be_larger_than_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    (batch,) = world(monkeypatch, 1, batch_size=25)
    assert set(Counter(batch).values()) == {2, 3}


class Grouping(Items):
    """As Hugging Face's data sets: `batch` groups all samples."""

    def batch(self, batch_size: int, drop_last_batch: bool = False) -> list[int]:
        raise AssertionError("called for a batch of some samples")


class Sized(Items):
    batch = 32


class Both(Items, Batches):
    """Items, and batches of Paceline's form."""


@pytest.mark.parametrize("dataset", [Grouping(), Sized()])
def test_a_data_set_with_items_and_another_kind_of_batch_is_read_by_its_items(monkeypatch: pytest.MonkeyPatch, dataset: Any) -> None:
    found = [batch.tolist() for batch in of_rank(monkeypatch, 0, 1, dataset, shuffle=False)]
    assert found == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_a_data_set_with_items_and_batches_of_our_form_is_read_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    indices, _ = next(iter(of_rank(monkeypatch, 0, 1, Both(), shuffle=False)))
    assert indices.tolist() == [0, 1]


def test_the_documented_loop_trains_as_much_with_an_interruption_where_a_batch_is_larger_than_an_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for interrupted in (None, 1, 2):
        batches, batches_of = 0, of_rank(monkeypatch, 0, 1, batch_size=16)
        while batches_of.epoch < 3:
            for _ in batches_of:
                batches += 1
            if batches == interrupted:
                saved, batches_of = batches_of.state_dict(), of_rank(monkeypatch, 0, 1, batch_size=16)
                batches_of.load_state_dict(saved)
        found.append(batches)
    assert found == [2, 2, 2]


@pytest.mark.parametrize(
    ("dataset", "batch_size", "problem"),
    [
        (iter(()), 2, "cannot be shared out by number"),
        ([], 2, "of type list is empty"),
        ([1], 0, "batch_size=0 is less than 1"),
        ([1], "8", "batch_size='8' is of type str; give a whole number"),
    ],
)
def test_what_cannot_be_shared_out_is_refused(dataset: Any, batch_size: Any, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        loader(dataset, batch_size)


class Named(torch.utils.data.Dataset[Tensor]):
    """Has `__getitem__` of torch's own class, which raises."""

    def __len__(self) -> int:
        return SAMPLES

    def batch(self, chosen: Tensor, drawn: torch.Generator) -> Tensor:
        return chosen


def test_batches_are_taken_of_a_data_set_that_names_its_arguments_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [batch.tolist() for batch in of_rank(monkeypatch, 0, 1, Named(), shuffle=False)] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
