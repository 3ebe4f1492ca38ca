"""A real Slurm with three slurmd on this machine: agents as its jobs, and its ways of taking them away."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, SeenLaunch, WantedNode
from paceline.cluster.provisioners.slurm import SlurmProvisioner
from paceline.cluster.provisioners.slurm_settings import SlurmSettings
from scripts.slurm_cluster import SlurmCluster, missing_programs
from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

NODE_SECONDS, JOB_SECONDS, DRAIN_SECONDS = 150.0, 150.0, 90.0


class SlurmNodes:
    """A stack without agents of its own, whose nodes come from Slurm."""

    def __init__(self, stack: Stack, slurm: SlurmCluster, folder: Path) -> None:
        self.stack, self.slurm, self.folder = stack, slurm, folder

    def provisioner(self, **settings: Any) -> SlurmProvisioner:
        program = self.folder / "paceline"
        if not program.exists():
            program.write_text(f'#!/bin/bash\ncd {ROOT} && exec {sys.executable} -m paceline.cli.main "$@"\n')
            program.chmod(0o755)
        fields = {
            "paceline": str(program),
            "directory": str(self.folder / "nodes"),
            "checkpoints": str(self.folder / "checkpoints"),
            "kill_wait": 60,
            "time": "30",
        }
        return SlurmProvisioner(SlurmSettings(**fields | settings), ProvisionerContext(self.folder, lambda _: None))

    def clear(self) -> None:
        """End whatever an earlier test has left."""
        for job in self.stack.unfinished():
            self.stack.cancel(job["id"])
        self.slurm.command("scancel", "--user=root")
        wait_until("Slurm to be empty", lambda: not self.slurm.command("squeue", "-h").strip(), DRAIN_SECONDS)
        for node in self.stack.get("/cluster/nodes")["items"]:
            self.stack.client.delete(f"/cluster/nodes/{node['id']}", params={"force": "true"})

    def launch(self, name: str, **settings: Any) -> str:
        token = self.stack.client.post("/cluster/nodes", json={}).json()["token"]
        self.token = token
        asked = WantedNode(name=name, pool="work", server=self.stack.server, join_token=token, slots=1)
        return asyncio.run(self.provisioner(**settings).launch(asked))

    def look(self, handle: str) -> SeenLaunch:
        return asyncio.run(self.provisioner().poll([handle]))[handle]

    def state(self, name: str) -> str | None:
        nodes = self.stack.get("/cluster/nodes", status="joining,ready,cordoned,draining,unreachable,lost,gone")["items"]
        return next((str(node["state"]) for node in nodes if node["name"] == name), None)

    def until_state(self, name: str, *states: str, seconds: float = NODE_SECONDS) -> None:
        wait_until(f"{name} to be {states}", lambda: self.state(name) in states, seconds)

    def until_step(self, job_id: str, step: int) -> dict[str, Any]:
        def reached() -> dict[str, Any] | None:
            job: dict[str, Any] = self.stack.job(job_id)
            assert job["state"] != "failed", job
            return job if job["state"] == "running" and job["progress"]["step"] >= step else None

        return wait_until(f"step {step}", reached, JOB_SECONDS)


@pytest.fixture
def nodes(slurm_nodes: SlurmNodes) -> SlurmNodes:
    slurm_nodes.clear()
    return slurm_nodes


@pytest.fixture(scope="module")
def slurm_nodes(empty_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmNodes]:
    if missing := missing_programs():
        pytest.skip(f"no {', '.join(missing)} here: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    slurm = SlurmCluster(tmp_path_factory.mktemp("slurm"), free_port(), kill_wait=60)
    slurm.start()
    before = os.environ.get("SLURM_CONF")
    os.environ["SLURM_CONF"] = slurm.environment["SLURM_CONF"]
    try:
        empty_stack.bring_up("--port", str(free_port()), "--agents", "0")
        yield SlurmNodes(empty_stack, slurm, tmp_path_factory.mktemp("nodes"))
    finally:
        slurm.stop()
        os.environ.pop("SLURM_CONF") if before is None else os.environ.update(SLURM_CONF=before)


def test_a_cancelled_node_leaves_before_it_is_killed_and_its_job_goes_on(nodes: SlurmNodes) -> None:
    one, two = nodes.launch("work-one"), nodes.launch("work-two")
    for name, handle in (("work-one", one), ("work-two", two)):
        nodes.until_state(name, "ready")
        assert nodes.look(handle).phase is LaunchPhase.RUNNING
    for text in (nodes.slurm.command("scontrol", "show", "job"), subprocess.run(["ps", "axww"], capture_output=True, text=True).stdout):
        assert "work-one" in text
        assert nodes.token not in text
    job_id = nodes.stack.submit(tiny_gpt("across-slurm", 100_000))
    nodes.until_step(job_id, 20)
    nodes.slurm.command("scancel", two)
    nodes.until_state("work-two", "gone", seconds=DRAIN_SECONDS)
    job = nodes.stack.job(job_id)
    nodes.until_step(job_id, job["progress"]["step"] + 20)
    assert job["restarts"] == 0
    nodes.stack.cancel(job_id)
    asyncio.run(nodes.provisioner().terminate(one))
    nodes.until_state("work-one", "gone", seconds=DRAIN_SECONDS)
    wait_until("both jobs to be over", lambda: not nodes.slurm.command("squeue", "-h").strip(), DRAIN_SECONDS)


#: Its two ranks talk to each other; SIGTERM ends a rank at once, and costs the other one its connection.
TALKER = """
import time

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
print("world", dist.get_world_size(), flush=True)
while True:
    dist.all_reduce(torch.ones(1))
    time.sleep(0.05)
"""


@pytest.mark.parametrize(("name", "least", "state"), [("fixed", {}, "recovering"), ("elastic", {"min_nodes": 1}, "running")])
def test_a_script_whose_node_is_cancelled_has_not_crashed(
    nodes: SlurmNodes, tmp_path: Path, name: str, least: dict[str, int], state: str
) -> None:
    """Slurm signals the ranks themselves, which was taken for a crash: it cost a restart."""
    handles = [nodes.launch(f"{name}-{number}") for number in range(2)]
    for number in range(2):
        nodes.until_state(f"{name}-{number}", "ready")
    (tmp_path / "talker.py").write_text(TALKER)
    spec = {"name": name, "script": {"path": "talker.py"}, "resources": {"nodes": 2, **least}, "fault_tolerance": {"max_restarts": 0}}
    job_id = nodes.stack.submit(spec | {"environment": {"working_directory": str(tmp_path)}})

    def said(world: int) -> int:
        lines = nodes.stack.get(f"/training/jobs/{job_id}/logs", limit=1000)["items"]
        return sum(line["text"] == f"world {world}" for line in lines)

    wait_until("both talk", lambda: said(2) == 2, JOB_SECONDS)
    nodes.slurm.command("scancel", handles[1])
    nodes.until_state(f"{name}-1", "gone", seconds=DRAIN_SECONDS)
    job = nodes.stack.wait_for_state(job_id, state)
    assert job["restarts"] == 0, job
    assert job["failure"] is None or job["failure"]["share"] == "victim", job
    wait_until("those that are left talk", lambda: said(1) == len(least), JOB_SECONDS)


def test_a_time_limit_is_no_fault_and_the_queued_job_brings_the_node_back(nodes: SlurmNodes) -> None:
    handle = nodes.launch("work-limited", time="3", drain_seconds=120, requeue=True)
    nodes.until_state("work-limited", "ready")
    job_id = nodes.stack.submit(tiny_gpt("limited", 100_000, nodes=1))
    nodes.until_step(job_id, 10)
    wait_until("the job to wait for slots", lambda: nodes.stack.job(job_id)["state"] == "queued", 180)
    job = nodes.stack.job(job_id)
    assert job["restarts"] == 0
    (checkpoint, *_) = nodes.stack.get(f"/checkpoints/jobs/{job_id}")["items"]
    wait_until("Slurm to queue it again", lambda: nodes.look(handle).phase is LaunchPhase.PENDING, DRAIN_SECONDS)
    nodes.until_state("work-limited", "unreachable", "lost")
    nodes.slurm.command("scontrol", "update", f"jobid={handle}", "StartTime=now")
    nodes.until_state("work-limited", "ready")
    nodes.until_step(job_id, checkpoint["step"] + 1)
    nodes.stack.cancel(job_id)
    asyncio.run(nodes.provisioner().terminate(handle))
    nodes.until_state("work-limited", "gone", seconds=DRAIN_SECONDS)


def test_a_job_that_preempts_a_node_is_a_drain(nodes: SlurmNodes) -> None:
    handle = nodes.launch("work-preempted")
    nodes.until_state("work-preempted", "ready")
    job_id = nodes.stack.submit(tiny_gpt("preempted", 100_000, nodes=1))
    nodes.until_step(job_id, 10)
    urgent = nodes.slurm.command("sbatch", "--parsable", "-p", "urgent", "-N3", "--exclusive", "--wrap", "sleep 600").strip()
    wait_until("the job to wait for slots", lambda: nodes.stack.job(job_id)["state"] == "queued", DRAIN_SECONDS)
    assert nodes.stack.job(job_id)["restarts"] == 0
    assert nodes.stack.get(f"/checkpoints/jobs/{job_id}")["items"]
    nodes.slurm.command("scancel", urgent, handle)
    nodes.stack.cancel(job_id)
    nodes.until_state("work-preempted", "gone", seconds=DRAIN_SECONDS)
