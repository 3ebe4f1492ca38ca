"""`paceline.loader`: batches of a data set, shared out over the ranks, shuffled anew in each epoch, and resumed exactly.

The samples of all epochs form one endless line, as in a job (`paceline.training.data.sampler`): each batch of the world takes its next places, and
the ranks take equal parts of those, side by side. No sample is dropped, and all ranks have equally many batches: a batch that an epoch does not
fill is filled up from the next epoch. All that a checkpoint has to keep is the place in the line, which holds for any number of ranks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from paceline.distributed.env import position
from paceline.training.data.sampler import data_generator, epoch_order
from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.options import read_whole

POSITION = "samples"
#: The first argument of `batch` in Hugging Face's `datasets`, where it groups the whole set.
FOREIGN = "batch_size"


class ShardedLoader:
    """Batches of this rank. Iterating yields what is left of the present epoch.

    loader = paceline.loader(dataset, batch_size=32)
    trainer.load_checkpoint(optimizer, loader=loader)
    while loader.epoch < epochs:
        for batch in loader:
            trainer.train_step(batch, optimizer, criterion, trainer.next_step)
        trainer.save_checkpoint(optimizer, loader=loader)

    Ask `epoch` anew each time, as here: a batch of a small data set may go over the end of more than one epoch.
    """

    def __init__(
        self, dataset: Any, batch_size: int, *, shuffle: bool, seed: int, num_workers: int, collate_fn: Callable[[list[Any]], Any] | None
    ) -> None:
        self._dataset, self.samples_of_epoch = dataset, size_of(dataset)
        batch_size = read_whole("batch_size", batch_size)
        if batch_size < 1:
            raise InvalidInputError(f"batch_size={batch_size} is less than 1; give the samples of each rank in a batch")
        place = position()
        self.batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self._rank, self._world_size = place.rank, place.world_size
        self._num_workers, self._collate = num_workers, collate_fn
        #: Place in the line: samples that all ranks together have been given so far.
        self.samples = 0

    @property
    def epoch(self) -> int:
        """Epoch that the next batch begins in, from 0."""
        return self.samples // self.samples_of_epoch

    @property
    def per_step(self) -> int:
        """Samples of all ranks in a batch."""
        return self.batch_size * self._world_size

    @property
    def _starts(self) -> range:
        """Places in the line at which the batches begin that are left of the present epoch."""
        return range(self.samples, (self.epoch + 1) * self.samples_of_epoch, self.per_step)

    def __len__(self) -> int:
        """Return how many batches each rank has left in the present epoch."""
        return len(self._starts)

    def __iter__(self) -> Iterator[Any]:
        starts = self._starts
        for start, batch in zip(starts, self._batches(starts), strict=True):
            self.samples = start + self.per_step  # before the batch is trained on: a checkpoint in the loop's body comes after it
            yield batch

    def _batches(self, starts: range) -> Iterator[Any]:
        if has_batches(self._dataset):
            for start in starts:
                generator = data_generator(self._seed, start // self.per_step, self._rank)
                yield self._dataset.batch(self.indices(start), generator)
        else:
            chosen = BatchIndices(self, starts)
            yield from DataLoader(self._dataset, batch_sampler=chosen, num_workers=self._num_workers, collate_fn=self._collate)

    def indices(self, start: int) -> Tensor:
        """Return the samples of this rank's part of the batch that begins at place `start`."""
        first = start + self._rank * self.batch_size
        places = torch.arange(first, first + self.batch_size)
        if not self._shuffle:
            return places % self.samples_of_epoch
        return torch.cat(
            [
                epoch_order(self._seed, epoch, self.samples_of_epoch)[
                    places[places // self.samples_of_epoch == epoch] % self.samples_of_epoch
                ]
                for epoch in epochs_of(places, self.samples_of_epoch)
            ]
        )

    def state_dict(self) -> dict[str, object]:
        """Return how many samples all ranks have been given, for a checkpoint."""
        return {POSITION: self.samples}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Go on after the sample at which `state_dict` was made, with any number of ranks."""
        found = state_dict[POSITION]
        assert isinstance(found, int)
        self.samples = found


class BatchIndices:
    """The samples of this rank in each batch, as torch's DataLoader takes them.

    Each list is made when its turn comes: those of a whole epoch at once held up its first batch, of a million samples for seconds."""

    def __init__(self, loader: ShardedLoader, starts: range) -> None:
        self._loader, self._starts = loader, starts

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self._starts)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the indices of one batch after the other."""
        for start in self._starts:
            yield self._loader.indices(start).tolist()


def has_batches(dataset: Any) -> bool:
    """Return whether `dataset` is one of ours, or of the same form: `batch(indices, generator)`, whatever it calls them.

    `batch` of Hugging Face's `datasets` is for something else."""
    batch = getattr(dataset, "batch", None)
    if not callable(batch):
        return False
    try:
        return FOREIGN not in inspect.signature(batch).parameters
    except ValueError:  # in C, without a signature
        return True


def epochs_of(places: Tensor, samples: int) -> range:
    """Return the epochs in which `places` lie, ascending places of samples over all epochs; `samples`: of an epoch."""
    return range(int(places[0]) // samples, int(places[-1]) // samples + 1)


def loader(
    dataset: Any,
    batch_size: int,
    *,
    shuffle: bool = True,
    seed: int = 0,
    num_workers: int = 0,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> ShardedLoader:
    """Return batches of `dataset` for this rank: a loader that shares out, shuffles per epoch and resumes exactly.

    `dataset` has a length, and either items by number, as torch's, or `batch(indices, generator)`, as `paceline.Dataset`. `batch_size` is that
    of each rank. `num_workers` and `collate_fn` are those of torch's DataLoader. Raises InvalidInputError for a data set without a length or
    without samples.
    """
    return ShardedLoader(dataset, batch_size, shuffle=shuffle, seed=seed, num_workers=num_workers, collate_fn=collate_fn)


def size_of(dataset: Any) -> int:
    """Return the number of samples. Raises InvalidInputError if there is none, or no way to choose samples by number."""
    if not hasattr(dataset, "__len__") or not (hasattr(dataset, "__getitem__") or has_batches(dataset)):
        raise InvalidInputError(
            f"a data set of type {type(dataset).__name__} cannot be shared out by number: it needs a length and items (__len__, __getitem__) or "
            "batch(indices, generator); let each rank read its own part of a stream instead, by paceline.world().rank"
        )
    if len(dataset) == 0:
        raise InvalidInputError(f"the data set of type {type(dataset).__name__} is empty; give one with at least one sample")
    return len(dataset)
