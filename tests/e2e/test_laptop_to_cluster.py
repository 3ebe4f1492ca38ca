"""From a laptop to a cluster: a folder with its requirements trains on two hosts with SSH, loses one, grows into a Slurm allocation, is paused until no
node is left, and goes on from an object store on new ones. No machine shares a folder with another one."""

from __future__ import annotations

import contextlib
import functools
import getpass
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from paceline.cli.local.processes import all_processes
from scripts.slurm_cluster import SlurmCluster, missing_programs
from tests.cluster.agent.environments.test_uv import write_wheel
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.object_store import BUCKET, CREDENTIALS, FaultyStore, object_store
from tests.ports import free_port
from tests.sshd import SshServer, needs_sshd, ssh_server

pytestmark = [
    pytest.mark.e2e,
    needs_sshd,
    pytest.mark.timeout(900),
    pytest.mark.skipif(bool(missing_programs()), reason=f"no {', '.join(missing_programs())} here: apt-get install slurm-wlm munge"),
    pytest.mark.skipif(os.geteuid() != 0, reason="slurmd needs root"),
]

STEPS, EVERY = 900, 50
JOB_SECONDS, NODE_SECONDS, END_SECONDS = 300.0, 150.0, 180.0
TASK = """
import time

import tinytool
import torch
from paceline import Task


class Numbers:
    def __len__(self):
        return 64

    def batch(self, indices, generator):
        time.sleep(0.02)
        return (indices.float()[:, None] / 64,)


def make(spec):
    print("trains with", tinytool.NAME, flush=True)
    return Task(model=torch.nn.Linear(1, 1), train=Numbers(), loss=lambda model, batch: ((model(batch[0]) - 1).square().mean(), {}))
"""


@dataclass(frozen=True)
class Cluster:
    """What there is besides the laptop."""

    stack: Stack
    hosts: tuple[SshServer, SshServer]
    slurm: SlurmCluster
    store: FaultyStore

    def run(self, *words: str, timeout: float = JOB_SECONDS, **options: Any) -> str:
        """Type a command of Paceline's on the laptop. Returns what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "paceline.cli.main", *words, "--server", self.stack.server, "--api-key", self.stack.api_key],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=timeout,
            **options,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def nodes_of(self, job: dict[str, Any]) -> set[str]:
        return {str(rank["node_name"]).partition("-")[0] for rank in job["ranks"]}


@pytest.fixture
def cluster(empty_stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    slurm = SlurmCluster(tmp_path / "slurm", free_port(), kill_wait=60)
    slurm.folder.mkdir()
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(object_store())
        monkeypatch.setenv("PACELINE_STORE_ENDPOINTS", store.url)
        hosts = tuple(stack.enter_context(ssh_server(tmp_path / f"host{number}", f"127.0.0.{number}")) for number in (2, 3))
        (hosts[1].home.parent / "user_key.pub").write_bytes((hosts[0].home.parent / "user_key.pub").read_bytes())
        stack.callback(slurm.stop)
        slurm.start()
        monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
        empty_stack.bring_up("--port", str(free_port()), "--agents", "0")
        yield Cluster(empty_stack, (hosts[0], hosts[1]), slurm, store)
        for host in hosts:
            power_off(host)


def power_off(host: SshServer) -> None:
    """Kill everything that runs on the host, as a power cut does. Its SSH server too: a pool would put a node there again."""
    for process in all_processes():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.environ().get("HOME") == str(host.home) or str(host.home.parent / "sshd_config") in " ".join(process.cmdline()):
                process.kill()


@contextlib.contextmanager
def package_index(folder: Path) -> Iterator[str]:
    """An index with one package; its URL."""
    folder.mkdir()
    write_wheel(folder / "tinytool")
    (wheel,) = (folder / "tinytool").iterdir()
    (folder / "tinytool" / "index.html").write_text(f'<!DOCTYPE html><html><body><a href="{wheel.name}">{wheel.name}</a></body></html>')
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(SimpleHTTPRequestHandler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def pools(cluster: Cluster, folder: Path) -> list[dict[str, Any]]:
    """Two hosts with SSH, which are cheap, and a partition of Slurm, which is not."""
    program = folder / "paceline"
    program.write_text(f'#!/bin/bash\ncd {ROOT} && exec {sys.executable} -m paceline.cli.main "$@"\n')
    program.chmod(0o755)
    listed = [host.host | {"user": getpass.getuser()} for host in cluster.hosts]
    ssh = {"type": "ssh", "hosts": listed, "key_file": str(cluster.hosts[0].key_file), "environment": sys.executable}
    slurm = {"type": "slurm", "paceline": str(program), "directory": str(folder / "nodes"), "kill_wait": 60, "time": "30"}
    scale = {"device": "cpu", "idle_seconds": 10, "discards_checkpoints": True}
    return [
        {"name": "lab", "provider": ssh, "slots": 1, "autoscale": scale | {"cost": 1}},
        {"name": "slurm", "provider": slurm, "slots": 1, "max_nodes": 2, "autoscale": scale | {"cost": 5}},
    ]


def write_project(folder: Path, index: str, store: FaultyStore) -> Path:
    """The laptop's folder; its job."""
    folder.mkdir()
    (folder / "task.py").write_text(TASK)
    (folder / "requirements.txt").write_text(f"--index-url {index}\ntinytool==1\n")
    job = {
        "name": "laptop",
        "entrypoint": "task:make",
        "resources": {"nodes": 2},
        "environment": {"requirements": "requirements.txt", "secrets": list(CREDENTIALS)},
        "training": {"steps": STEPS, "global_batch_size": 8, "eval_every_steps": None},
        "checkpoint": {"every_steps": EVERY, "directory": f"s3://{BUCKET}/runs", "options": store.options},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return folder / "job.yaml"


def test_a_folder_trains_on_hosts_and_in_slurm_and_outlives_a_host(cluster: Cluster, tmp_path: Path) -> None:
    stack = cluster.stack
    for name, value in CREDENTIALS.items():
        cluster.run("secret", "set", name, input=f"{value}-of-the-test")
    (tmp_path / "pools.yaml").write_text(yaml.safe_dump({"pools": pools(cluster, tmp_path)}))
    cluster.run("pools", "apply", str(tmp_path / "pools.yaml"))
    with package_index(tmp_path / "index") as index:
        job_file = write_project(tmp_path / "project", index, cluster.store)
        cluster.run("submit", str(job_file), "--workdir", str(job_file.parent))
        (job,) = stack.get("/training/jobs")["items"]

        def saved() -> list[dict[str, Any]]:
            found = stack.job(job["id"])
            assert found["state"] not in ("failed", "completed"), found
            return list(stack.get(f"/checkpoints/jobs/{job['id']}")["items"])

        wait_until("a checkpoint in the store", saved, JOB_SECONDS)
        assert cluster.nodes_of(stack.job(job["id"])) == {"lab"}, "the cheaper pool is the first"
        power_off(cluster.hosts[1])
        wait_until("the other rank to go on", lambda: stack.job(job["id"])["generation"] == 2, NODE_SECONDS)
        cluster.run("nodes", "add", "--pool", "slurm")
        wait_until("the job to grow", lambda: stack.job(job["id"])["generation"] == 3, NODE_SECONDS)
        assert cluster.nodes_of(stack.job(job["id"])) == {"lab", "slurm"}
        wait_until("a step there", functools.partial(has_stepped, stack, job["id"], stack.job(job["id"])["progress"]["step"]), JOB_SECONDS)
        cluster.run("pause", job["id"])
        paused = stack.wait_for_state(job["id"], "paused", "failed", "completed", timeout=JOB_SECONDS)
        assert paused["state"] == "paused", paused
        scaled_down(cluster)
        cluster.run("resume", job["id"])
        done = stack.wait_for_state(job["id"], "completed", "failed", timeout=2 * JOB_SECONDS)
    assert done["state"] == "completed", done["failure"]
    assert done["generations"][-1]["start_step"] == paused["progress"]["last_checkpoint_step"], "it began where the store has it"
    audit = stack.get(f"/training/jobs/{job['id']}/samples")
    assert (audit["exactly_once"], audit["samples"]) == (True, STEPS * 8)
    lines = stack.get(f"/training/jobs/{job['id']}/logs", limit=1000)["items"]
    assert sum(line["text"] == "trains with tinytool" for line in lines) >= 5
    assert [name for name in cluster.store.names("runs/") if name.endswith("manifest.json")]
    scaled_down(cluster)


def has_stepped(stack: Stack, job_id: str, step: int) -> bool:
    return bool(stack.job(job_id)["progress"]["step"] > step)


def scaled_down(cluster: Cluster) -> None:
    """Wait until no node is left, Slurm's queue is empty, and the host that has power has removed what it kept."""

    def ready() -> list[str]:
        return [node["name"] for node in cluster.stack.get("/cluster/nodes")["items"] if node["state"] == "ready"]

    wait_until("no node to be left", lambda: not ready(), END_SECONDS)
    wait_until("Slurm to be empty", lambda: not cluster.slurm.command("squeue", "-h").strip(), END_SECONDS)
    nodes = cluster.hosts[0].home / ".paceline" / "nodes"
    wait_until("the host that has power to be clear", lambda: not any(nodes.iterdir()), END_SECONDS)
