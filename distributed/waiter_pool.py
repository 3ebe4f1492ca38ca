"""Threads that wait for gloo instead of the training thread. They are reused, since starting one takes longer than most transfers."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

#: A thread that has had no task for so long ends.
IDLE_SECONDS = 1.0

Task = Callable[[], None]


class WaiterPool:
    """A pool with as many threads as there are tasks at a time, so that a task that never returns delays no other task."""

    def __init__(self) -> None:
        self._idle: deque[SimpleQueue[Task]] = deque()  # of threads that wait for a task
        self._busy: set[SimpleQueue[Task]] = set()  # of threads that run one

    @property
    def is_idle(self) -> bool:
        """Whether no task is running."""
        return not self._busy

    def submit(self, task: Task) -> None:
        """Run `task` in another thread. Any thread may call it. `task` must not raise."""
        try:
            queue = self._idle.pop()
        except IndexError:
            queue = SimpleQueue()
            threading.Thread(target=self._work, args=(queue,), name="waiter", daemon=True).start()
        self._busy.add(queue)
        queue.put(task)

    def _work(self, queue: SimpleQueue[Task]) -> None:
        while (task := self._next(queue)) is not None:
            task()
            del task  # or it would keep the finished work alive until the next task
            self._busy.discard(queue)
            self._idle.append(queue)

    def _next(self, queue: SimpleQueue[Task]) -> Task | None:
        try:
            return queue.get(timeout=IDLE_SECONDS)
        except Empty:
            return None if self._retire(queue) else queue.get()  # `submit` has just taken this thread

    def _retire(self, queue: SimpleQueue[Task]) -> bool:
        try:
            self._idle.remove(queue)
        except ValueError:
            return False
        return True


class TasksInOrder:
    """Runs tasks one after the other, in a thread of a pool for as long as there are any."""

    def __init__(self, pool: WaiterPool) -> None:
        self._pool, self._lock = pool, threading.Lock()
        self._tasks: deque[Task] = deque()
        self._is_running = False

    def submit(self, task: Task) -> None:
        """Run `task` after those that were submitted before it. `task` must not raise."""
        with self._lock:
            self._tasks.append(task)
            if self._is_running:
                return
            self._is_running = True
        self._pool.submit(self._run_all)

    def _run_all(self) -> None:
        while (task := self._next()) is not None:
            task()

    def _next(self) -> Task | None:
        with self._lock:
            if self._tasks:
                return self._tasks.popleft()
            self._is_running = False
            return None
