"""A job of ours and what its ranks write down: the victim is chosen by the step it has reached, never by the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from paceline.cli.api_types import Job
from paceline.cli.client import RestClient
from paceline.cli.job_facts import has_ended
from paceline.cli.local.layout import Layout
from scripts.faults.history import Commit
from scripts.faults.observer import HangError, Observer
from scripts.faults.spools import spools

START_TIMEOUT_S = 90.0
END_TIMEOUT_S = 60.0
#: For what the ranks have done to be known to the coordinator.
KNOWN_TIMEOUT_S = 60.0
POLL_S = 0.05


@dataclass(frozen=True)
class Victim:
    """A rank that has just written down the step it was waited for at."""

    rank: int
    node: str
    pid: int
    generation: int
    step: int


class Gang:
    """One running job and what its ranks write down."""

    def __init__(self, client: RestClient, layout: Layout, job_id: str, size: int, observer: Observer) -> None:
        self.client, self.layout, self.job_id, self.size, self.observer = client, layout, job_id, size, observer

    @property
    def history(self) -> list[Commit]:
        return list(self.observer.commits)

    def job(self) -> Job:
        return self.client.job(self.job_id)

    def victim(self, rank: int, step: int) -> Victim:
        """Return the process that is `rank` in the newest generation, once that rank has written down `step`."""
        found = self.observer.reach(rank, step, START_TIMEOUT_S)
        return Victim(rank, found.member, self._pid(found), found.generation, found.step)

    def _pid(self, commit: Commit) -> int:
        for rank in self.job().ranks:
            if (rank.rank, rank.node_name) == (commit.rank, commit.member) and rank.pid is not None:
                return rank.pid
        raise LookupError(f"the coordinator knows no process of rank {commit.rank} on {commit.member}: {self.job().ranks}")

    def processes(self, generation: int) -> dict[str, int]:
        """Return the pids of the working ranks by node, once the coordinator knows them to run in `generation` or a later one."""
        deadline = time.monotonic() + KNOWN_TIMEOUT_S
        while (job := self.job()).generation < generation or job.state != "running":
            if time.monotonic() > deadline:
                raise HangError(f"generation {generation} is not known to be running after {KNOWN_TIMEOUT_S:g} s: {job}")
            threading.Event().wait(POLL_S)
        return {rank.node_name: rank.pid for rank in job.ranks if rank.rank < job.world_size and rank.pid is not None}

    def ended(self, timeout: float) -> Job:
        deadline = time.monotonic() + timeout
        while not has_ended(job := self.job()):
            if time.monotonic() > deadline:
                raise HangError(f"{self.job_id} is still {job.state} at step {job.progress.step} after {timeout:g} s")
            threading.Event().wait(POLL_S)
        return job

    def cancel(self) -> None:
        job = self.job()
        if not has_ended(job):
            self.client.delete(f"/training/jobs/{self.job_id}", job.revision)
        self.ended(END_TIMEOUT_S)


@contextmanager
def running(client: RestClient, layout: Layout, spec: dict[str, Any]) -> Iterator[Gang]:
    """Submitted, watched, and cancelled at the end unless it has ended by itself."""
    job_id = str(client.create("/training/jobs", spec)["id"])
    with Observer(spools(layout.data, job_id)) as observer:
        gang = Gang(client, layout, job_id, int(spec["resources"]["nodes"]), observer)
        try:
            yield gang
        finally:
            gang.cancel()
