"""Where a step's micro-batches come from: a pure function of (seed, step, micro-batch), whoever asks, in whatever order."""

from __future__ import annotations

from typing import Protocol

from training.data.sampler import Portions, Sampler, data_generator
from training.data.streaming import StreamFeed
from training.spec.job import JobSpec
from training.task import Batch, Dataset, Stream


class Feed(Protocol):
    @property
    def epoch_samples(self) -> int | None:
        """None: nobody knows."""
        ...

    def micro_batch(self, step: int, index: int) -> Batch:
        """Micro-batch `index` of step `step` (from 1). Threads may ask at the same time."""
        ...


class DatasetFeed:
    """Of samples that can be had in any order."""

    def __init__(self, dataset: Dataset, seed: int, portions: Portions) -> None:
        self.dataset, self.seed = dataset, seed
        self.sampler = Sampler(len(dataset), seed, portions)

    @property
    def epoch_samples(self) -> int | None:
        return self.sampler.samples

    def micro_batch(self, step: int, index: int) -> Batch:
        return self.dataset.batch(self.sampler.micro_batch(step, index), data_generator(self.seed, step, index))


def open_feed(train: Dataset | Stream, spec: JobSpec) -> Feed:
    assert spec.training is not None
    portions = Portions(spec.training.global_batch_size, spec.micro_batch_size)
    if isinstance(train, Stream):
        return StreamFeed(train, spec.training.seed, portions, spec.training.data_workers)
    return DatasetFeed(train, spec.training.seed, portions)
