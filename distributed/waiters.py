"""Threads that wait for gloo in the place of those who must not: kept for the next wait, since to start one takes longer than most transfers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

#: A thread that nobody has needed for so long ends.
IDLE_SECONDS = 1.0

Task = Callable[[], None]


class Waiters:
    """As many threads as there are tasks at a time; one that never returns keeps none of the others waiting."""

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Task]] = deque()  # of threads that wait for a task
        self._under_way: set[SimpleQueue[Task]] = set()  # of the others

    @property
    def are_idle(self) -> bool:
        return not self._under_way

    def do(self, task: Task) -> None:
        """In another thread, from any thread. `task` raises nothing."""
        try:
            queue = self._idle.pop()
        except IndexError:
            queue = SimpleQueue()
            threading.Thread(target=self._work, args=(queue,), name="waiter", daemon=True).start()
        self._under_way.add(queue)
        queue.put(task)

    def _work(self, queue: SimpleQueue[Task]) -> None:
        while (task := self._next(queue)) is not None:
            task()
            del task  # or it would keep what it waited for until the next one
            self._under_way.discard(queue)
            self._idle.append(queue)

    def _next(self, queue: SimpleQueue[Task]) -> Task | None:
        try:
            return queue.get(timeout=IDLE_SECONDS)
        except Empty:
            return None if self._retired(queue) else queue.get()  # somebody has just taken this thread

    def _retired(self, queue: SimpleQueue[Task]) -> bool:
        try:
            self._idle.remove(queue)
        except ValueError:
            return False
        return True
