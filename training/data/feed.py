"""Where a step's micro-batches come from: a pure function of (seed, step, micro-batch), whichever rank asks, in whatever order."""

from __future__ import annotations

from typing import Protocol

from paceline.training.data.sampler import BatchSplit, Sampler, data_generator
from paceline.training.data.streaming import StreamFeed
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch, Dataset, Stream


class Feed(Protocol):
    @property
    def epoch_samples(self) -> int | None:
        """Samples in an epoch; None if unknown."""
        ...

    def micro_batch(self, step: int, index: int) -> Batch:
        """Micro-batch `index` of step `step` (from 1). Threads may ask at the same time."""
        ...

    def sample_ids(self, step: int, index: int) -> list[int]:
        """The numbers of the samples in that micro-batch; none where samples have no numbers."""
        ...


class DatasetFeed:
    """Micro-batches of a dataset whose samples can be read in any order."""

    def __init__(self, dataset: Dataset, seed: int, portions: BatchSplit) -> None:
        self.dataset, self.seed = dataset, seed
        self.sampler = Sampler(len(dataset), seed, portions)

    @property
    def epoch_samples(self) -> int | None:
        return self.sampler.samples

    def micro_batch(self, step: int, index: int) -> Batch:
        return self.dataset.batch(self.sampler.micro_batch(step, index), data_generator(self.seed, step, index))

    def sample_ids(self, step: int, index: int) -> list[int]:
        ids: list[int] = self.sampler.micro_batch(step, index).tolist()
        return ids


def open_feed(train: Dataset | Stream, spec: JobSpec) -> Feed:
    training = derived.training_of(spec)
    portions = BatchSplit(training.global_batch_size, derived.micro_batch_size(spec))
    if isinstance(train, Stream):
        return StreamFeed(train, training.seed, portions, training.data_workers)
    return DatasetFeed(train, training.seed, portions)
