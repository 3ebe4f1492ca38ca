"""Which samples a step uses: a pure function of (seed, step), with no state to save but the step's number.

The samples of all epochs form one endless line: epoch after epoch, each in an order of its own. Step n takes the next
`global_batch_size` places of that line. So each sample is used exactly once per epoch and none is dropped: where an epoch does not
end on a step, that step is filled up from the next epoch.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.training.errors import InvalidInputError
from paceline.training.schema.training import TrainingLength

_MASK = (1 << 64) - 1


def derive_seed(*parts: int) -> int:
    """A well-mixed 63-bit seed from small integers (the finalizer of SplitMix64, Steele et al. 2014)."""
    mixed = 0
    for part in parts:
        mixed = (mixed + part + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        mixed ^= mixed >> 31
    return mixed >> 1


@functools.lru_cache(maxsize=2)  # a step can touch two epochs
def epoch_order(seed: int, epoch: int, samples: int) -> Tensor:
    generator = torch.Generator().manual_seed(derive_seed(seed, epoch))
    return torch.randperm(samples, generator=generator)


def data_generator(seed: int, step: int, index: int) -> torch.Generator:
    """Return the generator for micro-batch `index` of step `step`: the only randomness that its samples may use."""
    return torch.Generator().manual_seed(derive_seed(derive_seed(seed, step, index + 1)))


@dataclass(frozen=True)
class BatchSplit:
    """Split of each step's global batch into micro-batches."""

    global_batch_size: int
    micro_batch_size: int

    @property
    def micro_batches(self) -> int:
        return -(-self.global_batch_size // self.micro_batch_size)

    def first(self, step: int) -> int:
        """The place in the line where step `step` (from 1) begins; it takes `global_batch_size` places."""
        return (step - 1) * self.global_batch_size

    def size(self, index: int) -> int:
        """Samples in micro-batch `index` of any step: the last one may be smaller."""
        return min(self.micro_batch_size, self.global_batch_size - index * self.micro_batch_size)

    def weight(self, index: int) -> float:
        """Return the weight of micro-batch `index` in the mean over the global batch."""
        return self.size(index) / self.global_batch_size


@dataclass(frozen=True)
class Sampler:
    samples: int
    seed: int
    portions: BatchSplit

    def micro_batch(self, step: int, index: int) -> Tensor:
        """Sample numbers of micro-batch `index` of step `step`."""
        first = self.portions.first(step) + index * self.portions.micro_batch_size
        return self.line(first, first + self.portions.size(index))

    def line(self, start: int, end: int) -> Tensor:
        pieces = []
        while start < end:
            epoch, offset = divmod(start, self.samples)
            piece = epoch_order(self.seed, epoch, self.samples)[offset : offset + end - start]
            pieces.append(piece)
            start += len(piece)
        return torch.cat(pieces)


def total_steps(length: TrainingLength, samples: int | None) -> int:
    """Return the steps of the run; the last one is filled up from the epoch that would follow. `samples` in an epoch; None if unknown."""
    if length.steps is not None:
        return length.steps
    assert length.epochs is not None
    if samples is None:
        raise InvalidInputError(f"training.epochs={length.epochs} needs data of known length, which a stream has not; give training.steps")
    return -(-length.epochs * samples // length.global_batch_size)


def evaluation_indices(samples: int, limit: int | None) -> Tensor:
    """Return the indices of the held-out samples, at most `limit`, spread evenly over the set; always the same."""
    count = min(samples, limit or samples)
    return torch.arange(count, dtype=torch.int64) * samples // count
