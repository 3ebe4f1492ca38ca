"""Measurements from the training loop to disk without the loop ever waiting: no lock, no I/O, no device sync in `record`.

A bounded queue takes the values; a thread empties it into the sink every DRAIN_SECONDS. What does not fit is dropped and counted.
Values must be plain floats: reading a tensor is the caller's sync, at a place of its choice.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from monitoring.sinks import MetricSink, MetricSpool

DRAIN_SECONDS = 0.05
CAPACITY = 10_000
CLOSE_TIMEOUT_SECONDS = 5.0
FLUSH_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Measurement:
    step: int
    time: float
    values: Mapping[str, float]


class Recorder:
    def __init__(self, sink: MetricSink, capacity: int = CAPACITY) -> None:
        self.dropped = 0
        self.after_write: Callable[[], None] | None = None  # called in the recorder's thread
        self._sink = sink
        self._capacity = capacity
        self._queue: deque[Measurement] = deque()
        self._flushes: deque[threading.Event] = deque()
        self._stop, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)
        self._thread.start()

    def record(self, step: int, values: Mapping[str, float]) -> None:
        """Keep `values` as measured at `step`. The mapping now belongs to the recorder."""
        if len(self._queue) >= self._capacity:
            self.dropped += 1
            return
        self._queue.append(Measurement(step, time.time(), values))

    def flush(self) -> None:
        """Wait until what is queued is written, so that it outlives this process; a stuck disk is waited for FLUSH_TIMEOUT_SECONDS only."""
        written = threading.Event()
        self._flushes.append(written)
        self._wake.set()
        written.wait(FLUSH_TIMEOUT_SECONDS)

    def close(self) -> None:
        """Write what is queued, durably."""
        self._stop.set()
        self._wake.set()
        self._thread.join(CLOSE_TIMEOUT_SECONDS)
        self._sink.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.wait(DRAIN_SECONDS)
            self._wake.clear()
            self._drain()
        self._drain()

    def _drain(self) -> None:
        flushes = [self._flushes.popleft() for _ in range(len(self._flushes))]  # first: what they wait for is queued by now
        if taken := [self._queue.popleft() for _ in range(len(self._queue))]:
            self._write(taken)
        for written in flushes:
            written.set()

    def _write(self, taken: list[Measurement]) -> None:
        try:
            self._sink.write(taken)
        except OSError as error:  # a full disk must not stop training; the loss is counted and said
            self.dropped += len(taken)
            print(f"WARNING metrics of steps {taken[0].step} to {taken[-1].step} not written: {error}", file=sys.stderr, flush=True)
        if self.after_write is not None:
            self.after_write()


@functools.cache
def recorder_at(path: Path) -> Recorder:
    """The recorder of this process for the spool `path`. A spool has one writer: the trainer and `paceline.log` share it."""
    return Recorder(MetricSpool(path))
