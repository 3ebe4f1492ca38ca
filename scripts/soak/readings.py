"""What is measured of a stack while it is under load: memory, descriptors and threads of its processes, its databases, and how fast it answers."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil

from paceline.cli.client import API
from paceline.cli.local.layout import Layout
from paceline.cli.local.processes import find, recorded

#: Between two requests of a `Prober`, unless it is told otherwise.
PROBE_SECONDS = 0.25
ANSWER_TIMEOUT_SECONDS = 30.0
STOP_TIMEOUT_SECONDS = 60.0
#: Answered from memory: what it takes longer than usual is the event loop's lag.
LOOP_PATH = "/healthz"
HISTORY, METRICS = "paceline.db", "metrics.db"
SPAWNER = "paceline.cluster.agent.spawner"
#: How long a reading waits for a database that is being written.
READ_SECONDS = 10.0
KIBIBYTE, MEBIBYTE = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Reading:
    """Figures by name, at one moment. `at`: seconds since the load began."""

    at: float
    values: Mapping[str, float]


@dataclass
class Prober:
    """Asks the API one question after the other in a thread of its own, and keeps how long each answer took."""

    url: str
    key: str
    paths: tuple[str, ...]  # below /api/v1
    every: float = PROBE_SECONDS  # between two requests
    now: Callable[[], float] = time.monotonic
    refused: int = 0  # answers of 500 and above, and connections that broke
    _seconds: dict[str, list[float]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="prober", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_SECONDS)

    def take(self) -> dict[str, float]:
        """The p99 of what was asked since the last call, in ms; empty where no answer came."""
        taken, self._seconds = self._seconds, {}
        loop = taken.pop(LOOP_PATH, [])
        answers = [seconds for each in taken.values() for seconds in each]
        return {name: 1000 * p99(samples) for name, samples in (("api_p99_ms", answers), ("loop_p99_ms", loop)) if samples}

    def _run(self) -> None:
        with httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.key}"}, timeout=ANSWER_TIMEOUT_SECONDS) as client:
            while not self._stop.is_set():
                for path in (LOOP_PATH, *(API + path for path in self.paths)):
                    self._ask(client, path)
                    if self._stop.wait(self.every):
                        return

    def _ask(self, client: httpx.Client, path: str) -> None:
        began = self.now()
        try:
            answer = client.get(path)
        except httpx.TransportError:
            self.refused += 1
            return
        if answer.status_code >= 500:
            self.refused += 1
        else:
            self._seconds.setdefault(path, []).append(self.now() - began)


def p99(samples: list[float]) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]


def processes(layout: Layout) -> dict[str, float]:
    """Resident memory, descriptors and threads of the coordinator and of each agent; of the processes that agents fork ranks from, the memory."""
    found: dict[str, float] = {}
    for record in recorded(layout):
        process = find(record)
        if process is None:
            continue
        try:
            with process.oneshot():
                found |= {
                    f"{record.name}.memory_mb": process.memory_info().rss / MEBIBYTE,
                    f"{record.name}.descriptors": float(process.num_fds()),
                    f"{record.name}.threads": float(process.num_threads()),
                }
            for spawner in (child for child in process.children() if SPAWNER in child.cmdline()):
                found[f"{record.name}.spawner.memory_mb"] = spawner.memory_info().rss / MEBIBYTE
        except psutil.NoSuchProcess:
            continue  # killed meanwhile
    return found


def databases(data: Path) -> dict[str, float]:
    """Sizes of files and of their logs. The history of jobs is kept for a year, so its database grows with each job: told for each."""
    files = [data / f"{name}{log}" for name in (HISTORY, METRICS) for log in ("", "-wal")]
    found = {f"{file.name}.mb": file.stat().st_size / MEBIBYTE for file in files if file.exists()}
    if jobs := job_count(data / HISTORY):
        found[f"{HISTORY}.kb_per_job"] = (data / HISTORY).stat().st_size / KIBIBYTE / jobs
    return found


def job_count(history: Path) -> int:
    """The number of jobs that a coordinator's database holds; 0 where it is not there yet."""
    if not history.exists():
        return 0
    with closing(sqlite3.connect(f"file:{history}?mode=ro", uri=True, timeout=READ_SECONDS)) as connection:
        return int(connection.execute("SELECT count(*) FROM jobs").fetchone()[0])
