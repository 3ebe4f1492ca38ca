"""Nudges between the parts of one process: the truth is in the tables, the bus only says "look again".

With REDIS_URL, `redis_bus.py` carries them to the other replicas as well.

A nudge carries nothing and may be lost or doubled without harm; its receiver reads the table. Topics:

    events              any event was appended
    metrics:<job id>    points of this job were stored
    logs:<job id>       log lines of this job were stored
    stacks:<job id>     a rank of this job has answered with its stacks
    scheduler           something that placement or the life cycle should look at
    experiments         an experiment was asked for something, or a job has come to a rest
    node:<node id>      this node's desired assignments may have changed
    retention           a checkpoint was committed, unpinned or released
    storage             a user wants a job's data deleted
    rollups             a refresh of roll-ups has ended before all of them were made
    readings            readings of some node were stored
    reading-rollups     a refresh of their roll-ups has ended before all of them were made
    exec                an exec session was opened, or its node cannot serve it
    deliveries          a notification is to be sent
    launches            a node was asked for, or is wanted no more
    identity            a key, session or user was revoked or changed
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

EVENTS = "events"
SCHEDULER = "scheduler"
EXPERIMENTS = "experiments"
IDENTITY = "identity"
EXEC = "exec"
RETENTION = "retention"
STORAGE = "storage"
ROLLUPS = "rollups"
READINGS = "readings"
READING_ROLLUPS = "reading-rollups"
DELIVERIES = "deliveries"
LAUNCHES = "launches"
#: For watchers: any topic may have been nudged.
EVERYTHING = "*"


def metrics(job_id: str) -> str:
    return f"metrics:{job_id}"


def logs(job_id: str) -> str:
    return f"logs:{job_id}"


def stacks(job_id: str) -> str:
    return f"stacks:{job_id}"


def node(node_id: str) -> str:
    return f"node:{node_id}"


class Subscription:
    """A subscription remembers at most one nudge: any number of them before `wait` count as one. For one task, which may have thousands
    like it: an event and a timeout of asyncio would cost each of them several times as much."""

    def __init__(self) -> None:
        self._nudged = False
        self._waiting: asyncio.Future[None] | None = None

    def nudge(self) -> None:
        self._nudged = True
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, timeout: float | None = None) -> bool:
        """True when nudged since the last wait, False when `timeout` seconds passed without."""
        if not self._nudged:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            alarm = None if timeout is None else loop.call_later(timeout, self._wake)
            try:
                await self._waiting
            finally:
                self._waiting = None
                if alarm is not None:
                    alarm.cancel()
        nudged, self._nudged = self._nudged, False
        return nudged


class Bus:
    def __init__(self) -> None:
        self._subscriptions: defaultdict[str, set[Subscription]] = defaultdict(set)
        self._forward: Callable[[Collection[str]], None] | None = None
        self._watchers: list[Callable[[Collection[str]], None]] = []

    def publish(self, *topics: str) -> None:
        """Nudge all subscribers of these topics, in other replicas too. Call it after the commit, not before."""
        self.nudge(topics)
        if topics and self._forward is not None:
            self._forward(topics)

    def nudge(self, topics: Collection[str]) -> None:
        """Nudge the subscribers of these topics in this process only."""
        for watcher in self._watchers:
            watcher(topics)
        for topic in topics:
            for subscription in self._subscriptions.get(topic, ()):
                subscription.nudge()

    def watch(self, watcher: Callable[[Collection[str]], None]) -> None:
        """Call `watcher` with the topics of each nudge from here on, so that it forgets what it remembers of them. It must neither wait
        nor fail."""
        self._watchers.append(watcher)

    def nudge_everyone(self) -> None:
        """Nudge all subscribers in this process: something may have been missed."""
        self.nudge(self._subscriptions.keys() | {EVERYTHING})

    @contextmanager
    def forwarding_to(self, forward: Callable[[Collection[str]], None]) -> Iterator[None]:
        """A context in which published topics go to `forward` as well, which must neither wait nor fail."""
        self._forward = forward
        try:
            yield
        finally:
            self._forward = None

    @contextmanager
    def subscribe(self, *topics: str) -> Iterator[Subscription]:
        subscription = Subscription()
        for topic in topics:
            self._subscriptions[topic].add(subscription)
        try:
            yield subscription
        finally:
            for topic in topics:
                self._drop(topic, subscription)

    def _drop(self, topic: str, subscription: Subscription) -> None:
        self._subscriptions[topic].discard(subscription)
        if not self._subscriptions[topic]:
            del self._subscriptions[topic]
