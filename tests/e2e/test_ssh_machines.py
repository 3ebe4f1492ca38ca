"""Hosts with SSH as machines of their own: a coordinator with TLS in one network namespace signs in on two others, and one of them is unplugged."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from scripts.faults.network import Network
from tests.e2e.netns import require_namespaces
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port
from tests.sshd import SshServer, needs_sshd, ssh_server

pytestmark = [pytest.mark.e2e, pytest.mark.release, needs_sshd, pytest.mark.timeout(600)]

CABLE = "eth0"
HOSTS = ("two", "three")
INSTALL_SECONDS, JOB_SECONDS, END_SECONDS = 300.0, 200.0, 120.0


class Machines(Stack):
    """The stack of machine one. Each machine has a network namespace and a home of its own, and two and three an SSH server."""

    def __init__(self, folder: Path, network: Network) -> None:
        super().__init__(folder / "one" / ".paceline")
        self.folder, self.network = folder, network
        self.hosts: dict[str, SshServer] = {}

    def open(self) -> None:
        address = self.network.address("one", CABLE)
        done = self.paceline("up", "--host", address, "--tls", "self-signed", "--agents", "0", "--port", str(free_port()), "--json")
        assert done.returncode == 0, done.stderr + self.logs()
        self.server = json.loads(done.stdout)["public_url"]
        key = json.loads((self.data / "credentials.json").read_text())["api_key"]
        context = ssl.create_default_context(cafile=str(self.data / "tls" / "ca.pem"))
        self._client = httpx.Client(
            base_url=f"{self.server}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=10, verify=context
        )

    def paceline(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
        return subprocess.run(
            self.network.inside("one", [sys.executable, "-m", "paceline.cli.main", *arguments]),
            cwd=self.data.parent,
            env={**kept, "PYTHONPATH": str(ROOT), "HOME": str(self.folder / "one"), "NO_COLOR": "1"},
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def run(self, *words: str) -> str:
        done = self.paceline(*words)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def node_at(self, machine: str) -> dict[str, Any]:
        """The node whose agent is on a machine."""
        nodes: list[dict[str, Any]] = self.get("/cluster/nodes")["items"]
        (found,) = [node for node in nodes if node["address"] == self.network.address(machine, CABLE)]
        return found

    def end(self) -> None:
        self.down()
        for machine in self.network.nodes:
            self.network.kill(machine)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    require_namespaces()
    with Network((CABLE,)) as network, contextlib.ExitStack() as servers:
        found = Machines(tmp_path, network)
        (tmp_path / "one").mkdir()
        network.add("one")
        try:
            for name in HOSTS:
                network.add(name)
                within = network.inside(name, [])
                found.hosts[name] = servers.enter_context(ssh_server(tmp_path / name, network.address(name, CABLE), within=within))
            first, second = (found.hosts[name] for name in HOSTS)
            (second.home.parent / "user_key.pub").write_bytes((first.home.parent / "user_key.pub").read_bytes())
            found.open()
            yield found
        finally:
            found.end()


def test_hosts_join_over_tls_and_one_is_unplugged(machines: Machines, tmp_path: Path) -> None:
    two, three = (machines.hosts[name] for name in HOSTS)
    given = [word for host in (two, three) for word in ("--ssh", f"{host.host['user']}@{host.address}:{host.port}")]
    given += [word for host in (two, three) for word in ("--host-key", host.fingerprint)]
    # torch is on this machine already, and nothing is downloaded in a test
    settings = [f"python={sys.executable}", f"packages_of={sys.executable}", 'pip_options=["--no-index", "--no-deps"]']
    more = [word for setting in settings for word in ("--set", setting)]
    machines.run("nodes", "add", *given, "--key-file", str(two.key_file), "--slots", "1", "--label", "zone=lab", *more)

    def ready() -> bool:
        return [node["state"] for node in machines.get("/cluster/nodes")["items"]] == ["ready"] * 2

    try:
        wait_until("both hosts", ready, INSTALL_SECONDS)
    except TimeoutError as error:
        raise AssertionError(f"{error}: {machines.run('nodes', 'launches')}\n{machines.logs()}") from error
    assert {machines.node_at(name)["provider"] for name in HOSTS} == {"ssh"}
    assert machines.node_at("two")["labels"]["zone"] == "lab"
    checkpoint = {"every_steps": 50, "directory": str(tmp_path / "shared")}
    resources = {"nodes": 2, "min_nodes": 1, "spread": True}
    job = machines.submit(tiny_gpt("apart", 100_000, checkpoint=checkpoint, resources=resources))
    wait_until("a step on both", lambda: machines.job(job)["progress"]["step"] > 60, JOB_SECONDS)
    gone = machines.node_at("three")["name"]
    machines.network.cut("three")
    machines.network.kill("three")
    wait_until("the other one to go on", lambda: machines.job(job)["generation"] == 2, JOB_SECONDS)
    left = machines.job(job)
    assert [rank["node_name"] for rank in left["ranks"]] == [machines.node_at("two")["name"]]
    wait_until("a step there", lambda: machines.job(job)["progress"]["step"] > left["progress"]["step"], JOB_SECONDS)
    machines.cancel(job)
    machines.wait_for_state(job, "cancelled", timeout=JOB_SECONDS)
    machines.run("nodes", "remove", machines.node_at("two")["name"], "--yes")
    nodes = two.home / ".paceline" / "nodes"
    wait_until("what the host kept to be gone", lambda: not any(nodes.iterdir()), END_SECONDS)
    (lost,) = [node for node in machines.get("/cluster/nodes")["items"] if node["name"] == gone]
    assert lost["state"] in ("unreachable", "lost")
