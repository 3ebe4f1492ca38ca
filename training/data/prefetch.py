"""Micro-batches computed ahead of the step that needs them, by threads of this rank.

What a micro-batch holds depends on (seed, step, micro-batch) alone, so it is the same on any rank, at any time. Threads, not
processes: nothing is forked from a process with a GPU or a process group, nothing is copied, and nothing outlives the rank. Reading
and numpy's and torch's own work run beside training; work in Python itself takes turns with it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from paceline.training.data.feed import Feed
from paceline.training.task import Batch

#: Micro-batches that are under way or wait, for each thread.
DEPTH = 2
#: (step, micro-batch)
BatchPosition = tuple[int, int]


def ahead(feed: Feed, places: Iterator[BatchPosition], threads: int) -> Feed:
    """`feed`, with `threads` threads that work ahead through `places`: what will be asked for, in that order."""
    return Prefetch(feed, places, threads) if threads else feed


class Prefetch:
    """Fetches the coming micro-batches in threads. When the object is garbage-collected, queued work is dropped and the threads end."""

    def __init__(self, feed: Feed, places: Iterator[BatchPosition], threads: int) -> None:
        self._feed, self._places, self._depth = feed, places, DEPTH * threads
        self._ahead: dict[BatchPosition, Future[Batch]] = {}
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="data")
        weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)

    @property
    def epoch_samples(self) -> int | None:
        return self._feed.epoch_samples

    def micro_batch(self, step: int, index: int) -> Batch:
        """Return the micro-batch. An error of the feed is raised here, when that micro-batch is asked for."""
        self._fill()
        due = self._ahead.pop((step, index), None)
        if due is None:
            return self._feed.micro_batch(step, index)
        self._fill()
        return due.result()

    def sample_ids(self, step: int, index: int) -> list[int]:
        return self._feed.sample_ids(step, index)

    def _fill(self) -> None:
        while len(self._ahead) < self._depth and (place := next(self._places, None)) is not None:
            self._ahead[place] = self._pool.submit(self._feed.micro_batch, *place)
