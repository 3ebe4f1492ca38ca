"""A whole Paceline on this machine, through the command a user would type: coordinator, agents, ranks, all real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

from paceline.cli.local.processes import all_processes
from tests.processes import command_of, is_alive, surroundings_of

ROOT = Path(__file__).parents[2]
#: A job that is left alone has fewer until it runs.
MOST_REVISIONS = 5
#: So many steps are asked for at once: an answer has at most twice as many raw points, and a step may have been taken in two generations.
STEPS_AT_ONCE = 1_000
T = TypeVar("T")


def wait_until(what: str, probe: Callable[[], T | None], timeout: float, every: float = 0.05) -> T:
    """The first truthy answer of `probe`; a TimeoutError that names `what` otherwise."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if answer := probe():
            return answer
        time.sleep(every)
    raise TimeoutError(f"{what}: not within {timeout:g} s")


class Stack:
    def __init__(self, data: Path) -> None:
        self.data = data
        self.server = ""
        self.api_key = ""
        self._client: httpx.Client | None = None

    def paceline(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "NO_COLOR": "1"}
        return subprocess.run(
            [sys.executable, "-m", "paceline.cli.main", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def up(self, port: int, agents: int = 2, slots: int = 1) -> str:
        """Starts (or heals) everything; the single-use login link."""
        return self.bring_up("--port", str(port), "--agents", str(agents), "--slots-per-agent", str(slots), "--gpus", "none")

    def bring_up(self, *arguments: str) -> str:
        """`paceline up` with these arguments; the single-use login link."""
        done = self.paceline("up", *arguments, "--data", str(self.data))
        assert done.returncode == 0, done.stderr + done.stdout + self.logs()
        credentials = json.loads((self.data / "credentials.json").read_text())
        self.server = credentials["server"]
        self.api_key = credentials["api_key"]
        if self._client is not None:
            self._client.close()
        self._client = httpx.Client(base_url=f"{self.server}/api/v1", headers={"Authorization": f"Bearer {self.api_key}"}, timeout=10)
        link = re.search(r"http://\S+/login\?token=\S+", done.stdout + done.stderr)
        assert link, f"no login link in: {done.stdout}{done.stderr}"
        return link.group()

    @property
    def port(self) -> int:
        return int(self.server.rpartition(":")[2])

    def tidy(self, agents: int, slots: int = 1) -> None:
        """As after `up`, whatever tests have left: no job runs or waits, each node is ready and may be used."""
        wait_until("jobs that were left to end", lambda: not [self.cancel(job["id"]) for job in self.unfinished()], 60, every=0.5)
        self.up(self.port, agents=agents, slots=slots)
        for node in self.get("/cluster/nodes")["items"]:
            self.client.put(f"/cluster/nodes/{node['id']}/uncordon")
        wait_until("all slots to be free", lambda: self.free_slots() == agents * slots, 60)

    def cancel(self, job_id: str) -> None:
        """Unless it has ended, or changes at this moment: then again."""
        response = self.client.delete(f"/training/jobs/{job_id}", headers={"If-Match": f'"{self.job(job_id)["revision"]}"'})
        assert response.status_code in (200, 409, 412), response.text

    def unfinished(self) -> list[dict[str, Any]]:
        jobs: list[dict[str, Any]] = self.get("/training/jobs", limit=200)["items"]
        return [job for job in jobs if job["state"] not in ("completed", "failed", "cancelled")]

    def free_slots(self) -> int:
        nodes = [node for node in self.get("/cluster/nodes")["items"] if node["state"] == "ready"]
        return sum(slot["job_id"] is None for node in nodes for slot in node["slots"])

    def login_link(self) -> str:
        done = self.paceline("login-link", "--json", "--server", self.server, "--api-key", self.api_key)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["url"])

    def down(self) -> None:
        if self._client is not None:
            self._client.close()
        done = self.paceline("down", "--data", str(self.data))
        assert done.returncode == 0, done.stderr + done.stdout

    def logs(self) -> str:
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.data.rglob("run/*.log")))

    def processes(self) -> list[psutil.Process]:
        """Every process that works on this data folder, zombies left out."""
        mine = [process for process in all_processes() if str(self.data) in surroundings_of(process)]
        return [process for process in mine if is_alive(process) and process.pid != os.getpid()]

    def coordinator(self) -> psutil.Process:
        return next(p for p in self.processes() if "paceline.api.serve" in " ".join(command_of(p)))

    def kill_coordinator(self) -> None:
        process = self.coordinator()
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=5)

    # --- the REST API as a script would use it
    @property
    def client(self) -> httpx.Client:
        assert self._client is not None, "call up() first"
        return self._client

    def get(self, path: str, **parameters: Any) -> Any:
        response = self.client.get(path, params=parameters)
        assert response.status_code == 200, f"GET {path}: {response.status_code} {response.text}"
        return response.json()

    def submit(self, spec: dict[str, Any]) -> str:
        response = self.client.post("/training/jobs", json=spec)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    def change(self, method: str, job_id: str, verb: str = "") -> dict[str, Any]:
        """Of a job that may change its state at this moment, as from starting to running: its new revision is named then."""
        path = f"/training/jobs/{job_id}" + (f"/{verb}" if verb else "")
        for _ in range(MOST_REVISIONS):
            revision = self.job(job_id)["revision"]
            response = self.client.request(method, path, headers={"If-Match": f'"{revision}"'})
            if response.status_code != httpx.codes.PRECONDITION_FAILED:
                break
        assert response.status_code == 200, response.text
        return dict(response.json())

    @contextlib.contextmanager
    def cordoned(self) -> Iterator[None]:
        """Nobody new comes to any node meanwhile: who is lost is not replaced."""
        paths = [f"/cluster/nodes/{node['id']}" for node in self.get("/cluster/nodes")["items"]]
        for path in paths:
            self.client.put(f"{path}/cordon").raise_for_status()
        try:
            yield
        finally:
            for path in paths:
                self.client.put(f"{path}/uncordon").raise_for_status()

    def job(self, job_id: str) -> dict[str, Any]:
        return dict(self.get(f"/training/jobs/{job_id}"))

    def wait_for_state(self, job_id: str, *states: str, timeout: float = 60) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            job = self.job(job_id)
            return job if job["state"] in states else None

        try:
            return wait_until(f"job in {states}", reached, timeout)
        except TimeoutError as error:
            raise AssertionError(f"{error}; it is {self.job(job_id)}\n{self.logs()}") from error

    def wait_for_step(self, job_id: str, step: int, timeout: float = 60) -> int:
        return wait_until(f"step {step} of {job_id}", lambda: (s := int(self.job(job_id)["progress"]["step"])) >= step and s, timeout)

    def raw_curve(self, job_id: str, name: str = "loss") -> list[tuple[int, float]]:
        """Every raw point of rank 0, over all generations, as stored."""
        points: list[tuple[int, float]] = []
        first = last = 0
        while first <= last:
            found = self.get(f"/metrics/jobs/{job_id}", names=name, first_step=first, last_step=first + STEPS_AT_ONCE - 1)
            curves, last, first = found["curves"], found["last_step"] or 0, first + STEPS_AT_ONCE
            assert all(curve["bucket_steps"] == 1 for curve in curves), "it has more points than an answer holds"
            points += [(step, value) for curve in curves for step, value in zip(curve["steps"], curve["last"], strict=True)]
        return sorted(points)
