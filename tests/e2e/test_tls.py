"""A coordinator with TLS of its own and two agents that know it by their tokens alone: a job trains, an agent is killed, nothing is readable."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from paceline.cli.local.exposure import addresses
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port
from tests.processes import command_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

READY_SECONDS, JOB_SECONDS, END_SECONDS = 120.0, 150.0, 30.0
FIRST_PORT, PORTS = 29_600, 40


class SecureStack(Stack):
    """A coordinator with TLS and no agent of `up`: those of a test join over the network, as on other machines."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.opened: dict[str, str] = {}

    def open(self) -> None:
        done = self.paceline(
            *(
                "up",
                "--host",
                "0.0.0.0",
                "--tls",
                "self-signed",
                "--agents",
                "0",
                "--port",
                str(free_port()),
                "--data",
                str(self.data),
                "--json",
            )
        )
        assert done.returncode == 0, done.stderr + self.logs()
        self.opened = json.loads(done.stdout)
        self.server = self.opened["public_url"]
        self.api_key = json.loads((self.data / "credentials.json").read_text())["api_key"]
        authority = str(self.data / "tls" / "ca.pem")
        headers = {"Authorization": f"Bearer {self.api_key}"}
        self._client = httpx.Client(
            base_url=f"{self.server}/api/v1", headers=headers, timeout=10, verify=ssl.create_default_context(cafile=authority)
        )

    def join(self, name: str, *, again: bool = False) -> None:
        """Run the command that the coordinator prints; `again`: without its token, as after a restart of the machine."""
        command = shlex.split(self.get_invitation() if not again else f"paceline worker --server {self.server}")
        places = ["--name", name, "--slots", "1", "--gpus", "none", "--data", str(self.data / "agents" / name)]
        more = ["--checkpoints", str(self.data / "checkpoints"), "--ports", f"{FIRST_PORT}-{FIRST_PORT + PORTS}"]
        log = self.data / "run" / f"{name}.log"
        with log.open("ab") as output:
            self.workers[name] = subprocess.Popen(
                [sys.executable, "-m", "paceline.cli.main", *command[1:], *places, *more], cwd=ROOT, stdout=output, stderr=output
            )

    def get_invitation(self) -> str:
        answer = self.client.post("/cluster/nodes", json={})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["command"])

    def end(self) -> None:
        for worker in self.workers.values():
            worker.terminate()
        for worker in self.workers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(END_SECONDS)
        self.down()


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureStack]:
    if not addresses():
        pytest.skip("this machine has no address besides loopback")
    stack = SecureStack(tmp_path_factory.mktemp("tls"))
    try:
        stack.open()
        for name in ("a", "b"):
            stack.join(name)
        wait_until("both agents", lambda: states(stack) == {"a": "ready", "b": "ready"}, READY_SECONDS)
        yield stack
    finally:
        stack.end()
    left = [command_of(process) for process in stack.processes()]
    assert not left, f"left behind: {left}"


def states(stack: Stack) -> dict[str, str]:
    return {node["name"]: node["state"] for node in stack.get("/cluster/nodes")["items"]}


def test_a_job_trains_over_tls_while_an_agent_is_killed_and_comes_back(secure: SecureStack) -> None:
    checkpoint = {"every_steps": 50, "directory": str(secure.data / "checkpoints")}
    job_id = secure.submit(tiny_gpt("sealed", 400, checkpoint=checkpoint))
    wait_until("a few steps", lambda: secure.job(job_id)["progress"]["step"] > 20, JOB_SECONDS)
    worker = secure.workers["b"]
    worker.send_signal(signal.SIGKILL)
    worker.wait(END_SECONDS)
    secure.join("b", again=True)
    job = secure.wait_for_state(job_id, "completed", "failed", timeout=JOB_SECONDS)
    assert job["state"] == "completed", job["failure"]
    assert job["progress"]["step"] == 400
    assert {rank["node_name"] for rank in job["ranks"]} == {"a", "b"}
    wait_until("all points", lambda: len(secure.raw_curve(job_id)) == 400, END_SECONDS)


def test_the_agents_speak_to_the_tls_port_alone(secure: SecureStack) -> None:
    """No connection of an agent to another machine but to the coordinator's socket that has TLS, and its stores are in their range."""
    port = int(secure.server.rpartition(":")[2])
    for worker in secure.workers.values():
        connections = psutil.Process(worker.pid).net_connections("tcp")
        assert {each.raddr.port for each in connections if each.status == psutil.CONN_ESTABLISHED and each.raddr} >= {port}
        listening = {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
        assert listening <= set(range(FIRST_PORT, FIRST_PORT + PORTS + 1)), listening
    host = secure.server.removeprefix("https://").rpartition(":")[0]
    with socket.create_connection((host, port), timeout=10) as plain:
        plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert not plain.recv(100).startswith(b"HTTP"), "plain http was answered on the address of other machines"


def test_the_command_line_pins_the_authority_once(secure: SecureStack, tmp_path: Path) -> None:
    def paceline(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
        return subprocess.run(
            [sys.executable, "-m", "paceline.cli.main", *arguments],
            cwd=tmp_path,
            env={**environment, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=60,
        )

    sign_in = ("login", "--server", secure.server, "--api-key", secure.api_key)
    asked = paceline(*sign_in)
    assert asked.returncode == 1
    assert f"--ca-fingerprint {secure.opened['ca_fingerprint']}" in asked.stderr
    assert paceline(*sign_in, "--ca-fingerprint", "0" * 64).returncode == 1
    done = paceline(*sign_in, "--ca-fingerprint", secure.opened["ca_fingerprint"])
    assert done.returncode == 0, done.stderr
    job_id = secure.submit(tiny_gpt("looked-at", 100_000, checkpoint={"every_steps": 1000, "directory": str(tmp_path / "c")}))
    secure.wait_for_state(job_id, "running", timeout=JOB_SECONDS)
    try:
        beside = paceline("exec", job_id, "--", "echo", "beside the rank")
        assert (beside.returncode, beside.stdout.strip()) == (0, "beside the rank"), beside.stderr
        assert paceline("logs", job_id, "--tail", "1").returncode == 0
    finally:
        secure.cancel(job_id)
    secure.wait_for_state(job_id, "cancelled", timeout=JOB_SECONDS)


def test_an_agent_refuses_plain_http_to_another_machine(tmp_path: Path) -> None:
    done = Stack(tmp_path).paceline("worker", "--server", "http://192.0.2.77:8000", "--token", "pj_x", "--data", str(tmp_path))
    assert done.returncode == 2
    assert "--insecure-http" in done.stderr
