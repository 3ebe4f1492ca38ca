"""The coordinator's own state, for `/metrics`: values that are measured all the time, and values that are looked up on request.

Without these a stopped event loop, a full disk, a queue that grows or a loop that fails would be noticed by its victims only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from sqlalchemy.pool import QueuePool

from paceline.api.core.background import in_background
from paceline.api.core.context import Services
from paceline.api.errors import ProblemError
from paceline.db.session import Database

LAG_INTERVAL_SECONDS = 0.25
#: From a well-behaved loop's millisecond to the ten seconds after which agents are unreachable.
LAG_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
WAIT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Why a record is acknowledged and not kept: its rank is not held by the node that sent it; it cannot be stored; the coordinator was restored from
#: an older copy, and the node had the record no more.
UNKNOWN_RANK, REFUSED, GONE = DROPPED = ("unknown_rank", "refused", "gone")
SQLITE_FILES = ("paceline.db", "paceline.db-wal", "metrics.db", "metrics.db-wal")


class Loop(Protocol):
    """The state of a loop that is reported."""

    name: str
    failed_steps: int

    @property
    def leads(self) -> bool: ...
    def seconds_since_success(self) -> float: ...


@dataclass
class Vitals:
    """Measurements of this process since it started."""

    registry: CollectorRegistry = field(default_factory=CollectorRegistry)

    def __post_init__(self) -> None:
        self.loop_lag = Histogram(
            "paceline_event_loop_lag_seconds",
            f"How much too late the event loop woke up, measured every {LAG_INTERVAL_SECONDS:g} s",
            buckets=LAG_BUCKETS,
            registry=self.registry,
        )
        self.upload_wait = Histogram(
            "paceline_upload_store_seconds",
            "From an upload's place in the writer's queue until it was durable",
            buckets=WAIT_BUCKETS,
            registry=self.registry,
        )
        self.dropped = Counter(
            "paceline_records_dropped",
            "Records of ranks that were acknowledged and not kept, by reason",
            ["reason"],
            registry=self.registry,
        )
        self.uploads_failed = Counter(
            "paceline_uploads_failed", "Uploads that were not accepted, by problem code", ["code"], registry=self.registry
        )
        for reason in DROPPED:
            self.dropped.labels(reason)  # so that it is there, as 0, before the first one

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("event-loop-lag", self._watch_loop)

    async def _watch_loop(self) -> None:
        while True:
            asleep = time.monotonic()
            await asyncio.sleep(LAG_INTERVAL_SECONDS)
            self.loop_lag.observe(max(0.0, time.monotonic() - asleep - LAG_INTERVAL_SECONDS))

    @contextmanager
    def counting_failures(self) -> Iterator[None]:
        """A context that counts the failures of uploads."""
        try:
            yield
        except ProblemError as error:
            self.uploads_failed.labels(error.code).inc()
            raise
        except Exception:
            self.uploads_failed.labels("internal").inc()
            raise


def describe(registry: CollectorRegistry, services: Services, queued: tuple[int, int], loops: Iterable[Loop]) -> None:
    """Look up the state of the coordinator, into `registry`. `queued`: records and bytes in the writer's queue."""
    records, size = queued
    Gauge("paceline_upload_queue_records", "Records and lines that wait to be stored", registry=registry).set(records)
    Gauge("paceline_upload_queue_bytes", "Bytes of the uploads that they came in", registry=registry).set(size)
    _pools(registry, {"control": services.control, "metrics": services.metrics})
    if services.control.is_sqlite:
        _files(registry, services.settings.data)
    _loops(registry, loops)


def _pools(registry: CollectorRegistry, databases: dict[str, Database]) -> None:
    used = Gauge("paceline_database_connections_in_use", "Connections that are in use", ["database"], registry=registry)
    limit = Gauge(
        "paceline_database_connections_limit", "How many there may be; further users of one wait", ["database"], registry=registry
    )
    waiting = Gauge("paceline_database_waiting_requests", "Requests that wait for SQLite's writer's turn", ["database"], registry=registry)
    for name, database in databases.items():
        waiting.labels(name).set(database.waiting_requests)
        pool = database.engine.pool
        if isinstance(pool, QueuePool):
            used.labels(name).set(pool.checkedout())
            limit.labels(name).set(pool.size() + pool._max_overflow)


def _files(registry: CollectorRegistry, data: Path) -> None:
    sizes = Gauge("paceline_database_file_bytes", "Size of a database's file or of its write-ahead log", ["file"], registry=registry)
    for path in (data / name for name in SQLITE_FILES):
        sizes.labels(path.name).set(path.stat().st_size if path.exists() else 0)


def _loops(registry: CollectorRegistry, loops: Iterable[Loop]) -> None:
    failed = Counter("paceline_loop_steps_failed", "Steps of a loop that raised", ["loop"], registry=registry)
    age = Gauge("paceline_loop_last_success_age_seconds", "Since the last step of a loop that went well", ["loop"], registry=registry)
    leads = Gauge("paceline_loop_leader", "1 where this process runs the loop, 0 where another one does", ["loop"], registry=registry)
    for loop in loops:
        failed.labels(loop.name).inc(loop.failed_steps)
        leads.labels(loop.name).set(loop.leads)
        if loop.leads:
            age.labels(loop.name).set(loop.seconds_since_success())
