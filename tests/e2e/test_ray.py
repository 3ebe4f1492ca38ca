"""Nodes of a real Ray of one machine, from a pool to a job that trains on two of them, and back."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.e2e.specs import tiny_gpt
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port
from tests.processes import command_of

pytestmark = [pytest.mark.e2e, pytest.mark.release, pytest.mark.timeout(400)]

#: Without the dashboard and the metrics of Ray: one raylet with two CPUs.
START = "start --head --port {port} --num-cpus 2 --num-gpus 0 --object-store-memory 80000000 --include-dashboard false --disable-usage-stats --block"
LOOK = """
import json, sys, ray
from ray.util.state import list_actors
ray.init(address=sys.argv[1], namespace="paceline", log_to_driver=False, logging_level="ERROR")
groups = ray.util.placement_group_table().values()
print(json.dumps({
    "actors": sorted(each["name"] for each in ray.util.list_named_actors(all_namespaces=True)),
    "groups": sorted(each["name"] for each in groups if each["state"] != "REMOVED"),
    "free": ray.available_resources().get("CPU", 0.0),
}))
"""


class Head:
    """A Ray head on a port of its own. A process asks it, so that the test itself is no part of its cluster."""

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{(port := free_port())}"
        words = [str(Path(sys.executable).parent / "ray"), *START.format(port=port).split()]
        with (folder / "head.log").open("wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log)

    def look(self) -> dict[str, Any]:
        done = subprocess.run([sys.executable, "-c", LOOK, self.address], capture_output=True, text=True, timeout=60)
        return dict(yaml.safe_load(done.stdout)) if done.returncode == 0 else {}

    def stop(self) -> None:
        """Kill it with all that it has started."""
        if self.process.poll() is None:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                process.kill()
            self.process.kill()
        self.process.wait()


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    if importlib.util.find_spec("ray") is None:
        pytest.skip("pip install 'paceline[ray]'")
    head = Head(tmp_path)
    try:
        yield head
    finally:
        head.stop()


def pool(head: Head, folder: Path) -> Path:
    """A file with a pool of two nodes. The agents are of this checkout, by way of a script."""
    program = folder / "paceline"
    program.write_text(f'#!/bin/bash\ncd {ROOT} && exec {sys.executable} -m paceline.cli.main "$@"\n')
    program.chmod(0o755)
    folders = {"directory": str(folder / "nodes"), "checkpoints": str(folder / "checkpoints")}
    provider = {"type": "ray", "address": head.address, "paceline": str(program), "drain_seconds": 30, **folders}
    file = folder / "pools.yaml"
    file.write_text(yaml.safe_dump({"pools": [{"name": "actors", "provider": provider, "slots": 1, "max_nodes": 3}]}))
    return file


def names(stack: Stack, *states: str) -> list[str]:
    return sorted(node["name"] for node in stack.get("/cluster/nodes")["items"] if node["state"] in states)


def launches(stack: Stack, state: str) -> list[dict[str, Any]]:
    return [each for each in stack.get("/cluster/launches")["items"] if each["state"] == state]


def test_actors_are_nodes_that_train_and_leave_nothing(empty_stack: Stack, head: Head, tmp_path: Path) -> None:
    stack = empty_stack
    stack.up(free_port(), agents=0)

    def paceline(*words: str) -> None:
        done = stack.paceline(*words, "--server", stack.server, "--api-key", stack.api_key)
        assert done.returncode == 0, done.stderr + done.stdout

    wait_until("Ray has its CPUs", lambda: head.look().get("free") == 2.0, 60)
    paceline("pools", "apply", str(pool(head, tmp_path)))
    paceline("nodes", "add", "--pool", "actors", "-n", "3")
    first, second = wait_until("two are ready", lambda: found if len(found := names(stack, "ready")) == 2 else None, 150)
    waiting = wait_until("the third waits", lambda: [each for each in launches(stack, "pending") if "ray status" in each["reason"]], 60)
    assert head.look()["free"] == 0.0
    paceline("nodes", "cancel", waiting[0]["name"])

    job_id = stack.submit(tiny_gpt("on-actors", 100_000))
    wait_until("two ranks train", lambda: (job := stack.job(job_id))["state"] == "running" and job["progress"]["step"] >= 20, 100)
    assert sorted(rank["node_name"] for rank in stack.job(job_id)["ranks"]) == [first, second]
    paceline("nodes", "remove", second, "--yes")
    wait_until("it is gone", lambda: names(stack, "ready", "draining", "unreachable") == [first], 90)
    step = stack.job(job_id)["progress"]["step"]
    wait_until("the other rank trains on", lambda: stack.job(job_id)["progress"]["step"] >= step + 20, 60)
    job = stack.job(job_id)
    assert (job["state"], job["restarts"], [rank["node_name"] for rank in job["ranks"]]) == ("running", 0, [first])
    wait_until("Ray has the CPU back", lambda: head.look().get("free") == 1.0, 60)

    (keeper,) = (process for process in stack_actors(head) if first in " ".join(command_of(process)))
    keeper.parent().kill()  # type: ignore[union-attr]  # the actor, as Ray kills it: its agent does not outlive it
    wait_until("its node is gone too", lambda: names(stack, "ready", "draining") == [], 90)
    wait_until("nothing is left", lambda: (seen := head.look()) and (seen["actors"], seen["groups"], seen["free"]) == ([], [], 2.0), 60)
    wait_until("the launches are over", lambda: not stack.get("/cluster/launches")["items"], 60)
    stack.cancel(job_id)


def stack_actors(head: Head) -> list[psutil.Process]:
    """The agents' processes that actors of this head have started."""
    found = psutil.Process(head.process.pid).children(recursive=True)
    return [each for each in found if "paceline.cluster.agent.main" in command_of(each)]
