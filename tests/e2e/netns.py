"""Several machines on one: a network namespace for each agent, with a cable for data and one for its coordinator that can be pulled."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest

from scripts.faults.network import Network, lacking
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port

Cable = Literal["control", "data"]
CABLES: tuple[Cable, ...] = ("control", "data")
START_SECONDS = 90.0
END_SECONDS = 30.0


def require_namespaces() -> None:
    """Or skip; fail where CI=true."""
    reason = lacking()
    if reason is not None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"NO NAMESPACES: {reason}")


class Site(Stack):
    """A coordinator here, and an agent on each machine of a network. What a `Stack` asks it can be asked, too."""

    def __init__(self, data: Path, network: Network) -> None:
        super().__init__(data)
        self.network = network
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, machines: int) -> None:
        host, port = self.network.outside, free_port()
        self.server = f"http://{host}:{port}"
        key = self._administer("api-key", "--name", "test")["key"]
        tokens = self._administer("join-token", "--count", str(machines))["tokens"]
        self._run("coordinator", [sys.executable, "-m", "uvicorn", "paceline.api.main:app", "--host", host, "--port", str(port)])
        self._client = httpx.Client(base_url=f"{self.server}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=10)
        wait_until("the coordinator", self._is_ready, START_SECONDS)
        for number, token in enumerate(tokens, start=1):
            self._start_agent(f"machine-{number}", token)
        wait_until("the agents", lambda: list(self.node_states().values()) == ["ready"] * machines, START_SECONDS)

    def node_states(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.get("/cluster/nodes")["items"]}

    def lose_power(self, machine: str) -> None:
        """Nobody in it says goodbye: its cables are cut first."""
        self.network.cut(machine)
        self.network.kill(machine)

    def end(self) -> None:
        if self._client is not None:
            self._client.close()
        for process in reversed(self._running):
            process.terminate()
        deadline = time.monotonic() + END_SECONDS
        for process in self._running:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for machine in self.network.nodes:  # spawners outlive their agents
            self.network.kill(machine)

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.server}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def _administer(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "paceline.api.admin", *arguments],
            cwd=ROOT,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def _environment(self) -> dict[str, str]:
        ours = {"DATA": str(self.data / "coordinator"), "INSECURE_PUBLIC": "true", "ALLOWED_HOSTS": self.network.outside}
        return os.environ | {f"PACELINE_{name}": value for name, value in ours.items()}

    def _start_agent(self, machine: str, token: str) -> None:
        self.network.add(machine)
        agent = [sys.executable, "-m", "paceline.cluster.agent.main", "--server", self.server, "--token", token, "--name", machine]
        places = ["--data", str(self.data / "agents" / machine), "--checkpoints", str(self.data / "checkpoints")]
        reach = ["--slots", "1", "--address", self.network.address(machine, "data"), "--insecure-http"]
        self._run(machine, self.network.inside(machine, [*agent, *places, *reach]))

    def _run(self, name: str, command: list[str]) -> None:
        log = self.data / "run" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=ROOT, env=self._environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        self._running.append(process)


@contextlib.contextmanager
def site(data: Path, machines: int) -> Iterator[Site]:
    """All of it is removed at the end, whatever has happened."""
    require_namespaces()
    with Network(CABLES) as network:
        found = Site(data, network)
        try:
            found.start(machines)
            yield found
        finally:
            found.end()
