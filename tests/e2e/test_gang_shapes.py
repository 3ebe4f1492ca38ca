"""Gangs of any shape on real agents: one machine for a job of two nodes, uneven shares, a lost share of several ranks, labels and taints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port

pytestmark = pytest.mark.timeout(240)

PRINTER = """
import os
import torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
names = "RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE WORLD_SIZE"
print("place", *(os.environ[name] for name in names.split()), flush=True)
"""


@pytest.fixture(scope="module")
def stack(empty_stack: Stack) -> Iterator[Stack]:
    """Two agents on this machine: `wide` with three slots, `narrow` with two."""
    empty_stack.up(free_port(), agents=0)
    agents = [_worker(empty_stack, "wide", "3", "--label", "zone=near"), _worker(empty_stack, "narrow", "2", "--taint", "dedicated=vision")]
    wait_until("both nodes are ready", lambda: len(empty_stack.get("/cluster/nodes", status="ready")["items"]) == 2, 60)
    yield empty_stack
    for agent in agents:
        agent.terminate()
    for agent in agents:
        agent.wait(30)


def _worker(stack: Stack, name: str, slots: str, *more: str) -> subprocess.Popen[bytes]:
    invitation = stack.client.post("/cluster/nodes", json={})
    assert invitation.status_code == 201, invitation.text
    command = [sys.executable, "-m", "paceline.cli.main", "worker", "--server", stack.server, "--token", invitation.json()["token"]]
    options = ["--name", name, "--slots", slots, "--data", str(stack.data / name), "--checkpoints", str(stack.data / "checkpoints"), *more]
    with open(stack.data / f"{name}.log", "wb") as log:
        return subprocess.Popen([*command, *options], cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log)


def example(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((ROOT / "examples" / name).read_text())
    return spec | {"training": spec["training"] | {"steps": 6, "eval_every_steps": None}}


def digits(name: str, steps: int, **resources: Any) -> dict[str, Any]:
    """Steps that cost next to nothing, on up to 20 ranks."""
    return {
        "name": name,
        "model": {"kind": "mlp", "hidden": [16]},
        "data": {"kind": "digits"},
        "training": {"steps": steps, "global_batch_size": 40, "micro_batch_size": 2, "eval_every_steps": None},
        "fault_tolerance": {"recovery": "close_up"},
        "resources": resources,
    }


def completed(stack: Stack, spec: dict[str, Any]) -> dict[str, Any]:
    job = stack.wait_for_state(stack.submit(spec), "completed", "failed", timeout=120)
    assert job["state"] == "completed", job["failure"]
    return job


def nodes_of(job: dict[str, Any]) -> Counter[str]:
    return Counter(rank["node_name"] for rank in job["ranks"])


def test_an_example_of_two_nodes_runs_on_one(stack: Stack) -> None:
    assert nodes_of(completed(stack, example("gpt_stdlib.yaml"))) == {"wide": 2}


def test_what_is_kept_off_a_node_waits_and_says_why_until_the_taint_goes(stack: Stack) -> None:
    job_id = stack.submit(digits("everywhere", 20, slots=5))
    waiting = wait_until("its reason", lambda: job if (job := stack.job(job_id))["pending"] else None, 20)
    assert waiting["pending"]["code"] == "no_matching_node"
    assert waiting["pending"]["text"].endswith("it cannot use narrow (taint dedicated=vision)")
    done = stack.paceline("nodes", "untaint", "narrow", "dedicated", "--server", stack.server, "--api-key", stack.api_key)
    assert done.returncode == 0, done.stderr
    job = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert nodes_of(job) == {"wide": 3, "narrow": 2}


def test_uneven_shares_tell_scripts_the_truth(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "printer.py").write_text(PRINTER)
    spec = {"name": "places", "script": {"path": "printer.py"}, "environment": {"working_directory": str(tmp_path)}}
    job = completed(stack, spec | {"resources": {"slots": 5}})
    lines = stack.get(f"/training/jobs/{job['id']}/logs", limit=200)["items"]
    found = sorted(line["text"].removeprefix("place ") for line in lines if line["text"].startswith("place "))
    assert found == ["0 0 3 0 2 5", "1 1 3 0 2 5", "2 2 3 0 2 5", "3 0 2 1 2 5", "4 1 2 1 2 5"]


FIVE_PARTS = {"kind": "gpt", "layers": 5, "heads": 5, "dim": 120, "context": 20, "vocab_size": 260}
#: Of the losses of the same job on one slot.
RELATIVE = 1e-3


@pytest.fixture(scope="module")
def losses_of_one_slot(stack: Stack) -> list[float]:
    return losses(stack, completed(stack, five_parts("one-slot", {"strategy": "single"}, slots=1)))


def five_parts(name: str, parallelism: dict[str, Any], **resources: Any) -> dict[str, Any]:
    return {
        "name": name,
        "model": FIVE_PARTS,
        "data": {"kind": "stdlib_text"},
        "parallelism": parallelism,
        "training": {"steps": 6, "global_batch_size": 10, "micro_batch_size": 2, "eval_every_steps": None},
        "resources": resources | {"tolerations": ["dedicated"]},
    }


def losses(stack: Stack, job: dict[str, Any]) -> list[float]:
    (curve,) = stack.get(f"/metrics/jobs/{job['id']}", names="loss")["curves"]
    found: list[float] = curve["last"]
    return found


@pytest.mark.parametrize(
    ("name", "parallelism"),
    [("fsdp", {"strategy": "fsdp"}), ("tensor", {"tensor": 5}), ("context", {"context": 5}), ("pipeline", {"pipeline": 5})],
)
def test_uneven_shares_train_alike_under_every_plan(
    name: str, parallelism: dict[str, Any], stack: Stack, losses_of_one_slot: list[float]
) -> None:
    job = completed(stack, five_parts(f"uneven-{name}", parallelism, slots=5))
    assert nodes_of(job) == {"wide": 3, "narrow": 2}
    assert losses(stack, job) == pytest.approx(losses_of_one_slot, rel=RELATIVE)


def test_a_share_of_several_ranks_is_lost_and_the_bits_stay(stack: Stack) -> None:
    """The two ranks of `narrow` are killed at once, and the three others go on."""
    spec = digits("torn", 400, slots=5, min_slots=1)
    job_id = stack.submit(spec)
    running = wait_until("its steps", lambda: job if (job := stack.job(job_id))["progress"]["step"] >= 3 else None, 90)
    assert nodes_of(running) == {"wide": 3, "narrow": 2}
    for rank in running["ranks"]:
        if rank["node_name"] == "narrow":
            os.kill(rank["pid"], signal.SIGKILL)
    job = stack.wait_for_state(job_id, "completed", "failed", timeout=120)
    assert (job["state"], job["restarts"]) == ("completed", 0), job["failure"]
    assert len(job["generations"]) > 1
    alone = completed(stack, spec | {"name": "alone", "resources": {"labels": {"zone": "near"}}})
    assert nodes_of(alone) == {"wide": 1}
    compared = stack.get("/training/compare", jobs=f"{job_id},{alone['id']}")
    assert compared["items"][0]["same_run"], compared
