"""A coordinator with MOCK_DB: a simulated cluster with demo jobs at every stage, which needs no signing in."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx

from tests.e2e.stack import ROOT
from tests.ports import free_port

ANSWER_SECONDS = 120.0
#: The demo goes on as fast as the machine lets it; one in which nothing has moved for so long is broken.
STANDSTILL_SECONDS = 120.0
STAGES_SECONDS = 800.0
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class Simulated:
    server: str
    client: httpx.Client

    def jobs(self) -> dict[str, dict[str, Any]]:
        """The newest job of each name."""
        found = self.client.get("/api/v1/training/jobs", params={"limit": 100, "archived": "include"}).json()["items"]
        return {job["name"]: job for job in reversed(found)}

    def experiments(self) -> dict[str, dict[str, Any]]:
        found = self.client.get("/api/v1/experiments", params={"limit": 100}).json()["items"]
        return {experiment["name"]: experiment for experiment in reversed(found)}

    def states(self) -> dict[str, Any]:
        """How far each demo job and experiment is; none before the coordinator answers."""
        with contextlib.suppress(httpx.TransportError):
            jobs = {name: (job["state"], job["generation"], (job["progress"] or {}).get("step")) for name, job in self.jobs().items()}
            return jobs | {name: (experiment["state"],) for name, experiment in self.experiments().items()}
        return {}


#: What pages show of the demo: a job at each end, one that has closed up after a crash, and an experiment with its analysis.
STAGES = {
    "wrong-vocabulary": "failed",
    "too-large-for-its-cards": "failed",
    "a-mistake": "cancelled",
    "paused-for-the-night": "paused",
    "resnet-56-lr-1": "completed",
    "resnet-56-lr-2": "completed",
    "resnet-56-lr-3": "completed",
    "ddp-or-fsdp": "completed",
}


def is_at_its_stages(states: dict[str, Any]) -> bool:
    return STAGES.items() <= {name: state for name, (state, *_) in states.items()}.items() and states["gpt-small-with-spares"][1] > 1


def await_stages(found: Simulated, process: subprocess.Popen[bytes]) -> None:
    """Wait until the demo has come to every stage, for as long as its jobs move. Raises AssertionError with where they stand."""
    deadline = time.monotonic() + STAGES_SECONDS
    moved, before = time.monotonic(), found.states()
    while not is_at_its_stages(states := found.states()):
        now = time.monotonic()
        if states != before:
            moved, before = now, states
        assert process.poll() is None, f"the coordinator has ended with {process.returncode}"
        assert now - moved < STANDSTILL_SECONDS, f"nothing has moved for {STANDSTILL_SECONDS:g} s: {states}"
        assert now < deadline, f"the demo is not at its stages within {STAGES_SECONDS:g} s: {states}"
        time.sleep(LOOK_SECONDS)


@contextlib.contextmanager
def simulation() -> Iterator[Simulated]:
    server = os.environ.get("PACELINE_TEST_SIMULATED", "")
    if server:  # one that runs already, to look for longer at what a test finds
        with httpx.Client(base_url=server, timeout=ANSWER_SECONDS) as client:
            yield Simulated(server, client)
        return
    port = free_port()
    server = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", "api.main:app", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "MOCK_DB": "true"})
    try:
        with httpx.Client(base_url=server, timeout=ANSWER_SECONDS) as client:
            found = Simulated(server, client)
            await_stages(found, process)
            yield found
    finally:
        process.terminate()
        process.wait(ANSWER_SECONDS)
