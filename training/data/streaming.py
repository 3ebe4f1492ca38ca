"""Streams, dealt out so that a step's number says it all: which samples it uses, and where each reader must stand.

Micro-batch i of every step reads a lane of its own: a fixed share of the shards, in another order in each pass over them. So where a lane
stands after any step is plain arithmetic, no rank needs to know how far another has read, and a checkpoint holds nothing of it.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from paceline.training.data.sampler import BatchSplit, data_generator, derive_seed
from paceline.training.errors import InvalidInputError
from paceline.training.task import Batch, Stream


class StreamFeed:
    """The micro-batches of a stream; of each lane as many samples are held as threads may be late by."""

    epoch_samples: int | None = None  # each lane passes over its shards at its own pace

    def __init__(self, stream: Stream, seed: int, portions: BatchSplit, threads: int) -> None:
        require_shards(stream, portions)
        self._stream, self._seed, self._portions = stream, seed, portions
        dealt = shuffled(range(stream.shards), derive_seed(seed))
        lanes = portions.micro_batches
        self._lanes = [
            SampleLane(stream, dealt[index::lanes], derive_seed(seed, index), kept=(1 + threads) * portions.size(index))
            for index in range(lanes)
        ]

    def micro_batch(self, step: int, index: int) -> Batch:
        count = self._portions.size(index)
        samples = self._lanes[index].take((step - 1) * count, count)
        return self._stream.batch(samples, data_generator(self._seed, step, index))

    def sample_ids(self, step: int, index: int) -> list[int]:
        return []  # a stream's samples are told from each other by its shards alone


class SampleLane:
    """The endless line of samples of one micro-batch: pass after pass over its shards. Threads may share it.

    Any place is found again, forward or back: the lengths of shards are declared, or learnt in passing, and what is known to lie before a
    place is not read again.
    """

    def __init__(self, stream: Stream, shards: Sequence[int], seed: int, kept: int) -> None:
        self._stream, self._shards, self._seed = stream, shards, seed
        self._lengths = {shard: length for shard in shards if (length := stream.samples(shard)) is not None}
        self._seen = dict.fromkeys(shards, 0)  # so many are known to be there
        self._kept: deque[Any] = deque(maxlen=kept)
        self._next = 0  # the place after the kept ones
        self._samples = self._read_from(0)
        self._lock = threading.Lock()

    def take(self, first: int, count: int) -> list[Any]:
        """The samples at `count` places (no more than are kept) from `first` on, counted from 0."""
        with self._lock:
            if not self._oldest <= first <= self._next + (self._kept.maxlen or 0) - count:  # a little ahead: another thread's turn is due
                self._go_to(first)
            while self._next < first + count:
                self._kept.append(self._read())
                self._next += 1
            skipped = first - self._oldest
            return list(itertools.islice(self._kept, skipped, skipped + count))

    @property
    def _oldest(self) -> int:
        return self._next - len(self._kept)

    def _go_to(self, place: int) -> None:
        self._kept.clear()
        self._next, self._samples = place, self._read_from(place)

    def _read(self) -> Any:
        try:
            return next(self._samples)
        except Exception:
            self._go_to(self._next)  # a generator that has raised is at its end, and this may be tried again
            raise

    def _read_from(self, place: int) -> Iterator[Any]:
        total = sum(self._lengths.values()) if len(self._lengths) == len(self._shards) else 0
        passes, place = divmod(place, total) if total else (0, place)
        for turn in itertools.count(passes):
            for shard in shuffled(self._shards, derive_seed(self._seed, turn)):
                length = self._lengths.get(shard)
                if length is None or place < length:
                    yield from self._read_shard(shard, place)
                place = max(0, place - self._lengths[shard])
            if not any(self._lengths.values()):
                raise InvalidInputError(
                    f"shards {', '.join(map(str, self._shards))} of the stream hold no sample, and a micro-batch needs some"
                )

    def _read_shard(self, shard: int, skipped: int) -> Iterator[Any]:
        """Its samples but the first `skipped`; then its length is known."""
        length = self._lengths.get(shard)
        number = min(skipped, self._seen[shard]) if length is None else skipped
        for sample in self._stream.read(shard, number):
            if number == length:
                raise unsteady(shard, f"more than {length}", length)
            number += 1
            self._seen[shard] = max(self._seen[shard], number)
            if number > skipped:
                yield sample
        if number < (self._seen[shard] if length is None else length):
            raise unsteady(shard, str(number), max(self._seen[shard], length or 0))
        self._lengths[shard] = number


def shuffled(numbers: Sequence[int], seed: int) -> list[int]:
    order = torch.randperm(len(numbers), generator=torch.Generator().manual_seed(seed))
    return [numbers[place] for place in order.tolist()]


def unsteady(shard: int, found: str, known: int) -> InvalidInputError:
    return InvalidInputError(
        f"shard {shard} of the stream gave {found} samples where there were {known}: Stream.read must give the same samples in the same order "
        "each time, or no sample can be used exactly once; store what cannot be read twice before you train on it"
    )


def require_shards(stream: Stream, portions: BatchSplit) -> None:
    if stream.shards < portions.micro_batches:
        larger = -(-portions.global_batch_size // max(1, stream.shards))
        raise InvalidInputError(
            f"the stream has {stream.shards} shards, fewer than the {portions.micro_batches} micro-batches of a step, which read shards of "
            f"their own; cut it into {portions.micro_batches} or more, or use training.micro_batch_size={larger} or more"
        )
