"""Watches what ranks write down, as they do it: for striking at a step, and for telling afterwards what happened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Protocol, TypeVar

from scripts.faults.history import Commit, newest_generation, ranks_of

T = TypeVar("T")

POLL_SECONDS = 0.01
STOP_TIMEOUT_SECONDS = 5.0
#: Enough commits to tell how a gang stands now: looking at all of them, many times a second, would cost what is measured.
RECENT = 600
#: A generation that has come so many steps far has its first one committed by all.
STEPS_TO_RESUME = 3


class HangError(TimeoutError):
    """A gang does not go on."""


class BlindError(RuntimeError):
    """The files that ranks write can no longer be read; the ranks themselves may be well."""


class Source(Protocol):
    def read(self) -> Iterable[Commit]:
        """Return the commits written since the last call."""

    def close(self) -> None: ...


class Observer:
    """Reads `source` in a thread, and keeps what it has read as `commits`. A context manager, which closes the source."""

    def __init__(self, source: Source) -> None:
        self.commits: list[Commit] = []
        self._source = source
        self._news = threading.Condition()
        self._broken: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def __enter__(self) -> Observer:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(STOP_TIMEOUT_SECONDS)
        self._source.close()

    @property
    def newest_step(self) -> int:
        return max((commit.step for commit in self.commits[-RECENT:]), default=0)

    def reach(self, rank: int, step: int, timeout: float) -> Commit:
        """The newest commit of `rank` in the newest generation, once it has come to `step`."""

        def there(recent: Sequence[Commit]) -> Commit | None:
            newest = newest_generation(recent)
            return next((each for each in reversed(recent) if (each.rank, each.generation) == (rank, newest) and each.step >= step), None)

        found = self._until(there, timeout)
        if found is None:
            raise HangError(f"rank {rank} has not reached step {step} within {timeout:g} s; the newest step is {self.newest_step}")
        return found

    def resumed(self, generation: int, timeout: float) -> bool:
        """Wait until a generation after this one has committed STEPS_TO_RESUME steps. Returns False after `timeout` seconds."""

        def going(recent: Sequence[Commit]) -> bool:
            newest = newest_generation(recent)
            steps = {commit.step for commit in recent if commit.generation == newest}
            return newest > generation and len(steps) >= STEPS_TO_RESUME

        return bool(self._until(going, timeout))

    def whole(self, size: int, timeout: float) -> int:
        """The newest generation, once every rank of it has a step behind it."""

        def full(recent: Sequence[Commit]) -> int:
            newest = newest_generation(recent)
            return newest if ranks_of(recent, newest) >= set(range(size)) else 0

        generation = self._until(full, timeout)
        if not generation:
            raise HangError(f"there are not {size} ranks at work within {timeout:g} s; the newest step is {self.newest_step}")
        return generation

    def _until(self, answer: Callable[[Sequence[Commit]], T], timeout: float) -> T | None:
        """The first truthy answer; None after `timeout` seconds without one. Raises BlindError."""
        with self._news:
            found = self._news.wait_for(lambda: self._broken or answer(self.commits[-RECENT:]), timeout)
        if self._broken is not None:
            raise BlindError(f"the observer broke after step {self.newest_step}: {self._broken!r}") from self._broken
        return found or None  # type: ignore[return-value]  # an exception was raised above

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # noqa: BLE001 - the waiting thread raises it
            with self._news:
                self._broken = error
                self._news.notify_all()

    def _watch(self) -> None:
        while not self._stop.wait(POLL_SECONDS):
            found = list(self._source.read())
            if found:
                with self._news:
                    self.commits += found
                    self._news.notify_all()
