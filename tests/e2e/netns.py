"""Several machines on one: a network namespace for each agent, with a cable for data and one for its coordinator that can be pulled."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import httpx
import pytest

from tests.e2e.conftest import free_port
from tests.e2e.stack import ROOT, Stack, wait_until

Cable = Literal["data", "control"]
CABLES: tuple[Cable, ...] = ("data", "control")
START_SECONDS = 90.0
END_SECONDS = 30.0


def ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def require_namespaces() -> None:
    """Or skip; fail where CI=true."""
    reason = None
    if os.geteuid() != 0:
        reason = "network namespaces need root"
    elif shutil.which("ip") is None:
        reason = "no program ip: install iproute2"
    if reason is not None:
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"NO NAMESPACES: {reason}")


@dataclass
class Network:
    """Two bridges, one for each kind of cable; machines are numbered from 1, the coordinator's is this one."""

    mark: str  # in all names, unique on this machine, at most 6 letters
    octet: int
    machines: list[str] = field(default_factory=list)
    bridges: list[str] = field(default_factory=list)

    def address(self, cable: Cable, number: int = 0) -> str:
        return f"10.{213 + CABLES.index(cable)}.{self.octet}.{number + 1}"

    def lay(self) -> None:
        for cable in CABLES:
            ip("link", "add", self._bridge(cable), "type", "bridge")
            self.bridges.append(self._bridge(cable))
            ip("address", "add", f"{self.address(cable)}/24", "dev", self._bridge(cable))
            ip("link", "set", self._bridge(cable), "up")

    def add(self) -> str:
        number = len(self.machines) + 1
        machine = f"{self.mark}n{number}"
        ip("netns", "add", machine)
        self.machines.append(machine)
        ip("-n", machine, "link", "set", "lo", "up")
        for cable in CABLES:
            ip("link", "add", self._plug(cable, machine), "type", "veth", "peer", "name", cable, "netns", machine)
            ip("link", "set", self._plug(cable, machine), "master", self._bridge(cable), "up")
            ip("-n", machine, "address", "add", f"{self.address(cable, number)}/24", "dev", cable)
            ip("-n", machine, "link", "set", cable, "up")
        return machine

    def pull(self, machine: str, *cables: Cable) -> None:
        for cable in cables or CABLES:
            ip("link", "set", self._plug(cable, machine), "down")

    def plug_in(self, machine: str, *cables: Cable) -> None:
        for cable in cables or CABLES:
            ip("link", "set", self._plug(cable, machine), "up")

    def pids(self, machine: str) -> list[int]:
        return [int(pid) for pid in ip("netns", "pids", machine).split()]

    def kill(self, machine: str) -> None:
        """Everything at once, as when it loses power: nobody says goodbye, for its cables are pulled first."""
        self.pull(machine)
        for pid in self.pids(machine):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        for machine in self.machines:
            for pid in self.pids(machine):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            ip("netns", "delete", machine)  # takes its ends of the cables along, and so the others
        for bridge in self.bridges:
            ip("link", "delete", bridge)

    def _bridge(self, cable: Cable) -> str:
        return f"{self.mark}{cable[0]}"

    def _plug(self, cable: Cable, machine: str) -> str:
        return f"{machine}{cable[0]}"


class Site(Stack):
    """A coordinator here, and an agent on each machine of a network. What a `Stack` asks it can be asked, too."""

    def __init__(self, data: Path, network: Network) -> None:
        super().__init__(data)
        self.network = network
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, machines: int) -> None:
        host, port = self.network.address("control"), free_port()
        self.server = f"http://{host}:{port}"
        key = self._administer("api-key", "--name", "test")["key"]
        tokens = self._administer("join-token", "--count", str(machines))["tokens"]
        self._run("coordinator", [sys.executable, "-m", "uvicorn", "api.main:app", "--host", host, "--port", str(port)])
        self._client = httpx.Client(base_url=f"{self.server}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=10)
        wait_until("the coordinator", self._is_ready, START_SECONDS)
        for number, token in enumerate(tokens, start=1):
            self._start_agent(self.network.add(), number, str(token))
        wait_until("the agents", lambda: list(self.node_states().values()) == ["ready"] * machines, START_SECONDS)

    def node_states(self) -> dict[str, str]:
        return {node["name"]: node["state"] for node in self.get("/cluster/nodes")["items"]}

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

    def _is_ready(self) -> bool:
        try:
            return httpx.get(f"{self.server}/readyz", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def _administer(self, *arguments: str) -> dict[str, object]:
        done = subprocess.run(
            [sys.executable, "-m", "api.admin", *arguments], cwd=ROOT, env=self._environment(), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def _environment(self) -> dict[str, str]:
        ours = {"DATA": str(self.data / "coordinator"), "INSECURE_PUBLIC": "true", "ALLOWED_HOSTS": self.network.address("control")}
        return os.environ | {f"PACELINE_{name}": value for name, value in ours.items()}

    def _start_agent(self, machine: str, number: int, token: str) -> None:
        agent = [sys.executable, "-m", "cluster.agent.main", "--server", self.server, "--token", token, "--name", machine]
        places = ["--data", str(self.data / "agents" / machine), "--checkpoints", str(self.data / "checkpoints")]
        reach = ["--slots", "1", "--address", self.network.address("data", number)]
        self._run(machine, ["ip", "netns", "exec", machine, *agent, *places, *reach])

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
    network = Network(mark=f"p{os.getpid() % 10_000}", octet=os.getpid() % 250)
    found = Site(data, network)
    try:
        network.lay()
        found.start(machines)
        yield found
    finally:
        found.end()
        network.remove()
