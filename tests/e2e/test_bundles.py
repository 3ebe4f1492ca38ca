"""A folder that is sent along with its job: trained from on every node, kept over restarts, given back, and run again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import ROOT, Stack, wait_until
from tests.paceline.bundles.test_listing import make

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

TRAIN = """
import os
import time
import torch
import torch.distributed as dist
from training import scale

dist.init_process_group("gloo")
total = torch.full((1,), float(scale))
dist.all_reduce(total)
print("sum", total.item(), "started", len(open("starts.txt").read().split()) if os.path.exists("starts.txt") else 0, flush=True)
dist.barrier()
if dist.get_rank() == 0:
    with open("starts.txt", "a") as file:
        file.write("x ")
while os.environ.get("HOLD") and not os.path.exists(os.environ["HOLD"]):
    time.sleep(0.05)
"""
TASK = """
import torch
from paceline import Task
from training import scale

class Numbers:
    def __len__(self):
        return 64

    def batch(self, indices, generator):
        return (indices.float()[:, None] * scale,)

def make(spec):
    return Task(model=torch.nn.Linear(1, 1), train=Numbers(), loss=lambda model, batch: (model(batch[0]).square().mean(), {}))
"""
JOB = "name: shipped\nscript: {path: train.py}\nresources: {nodes: 2}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A laptop's folder, with packages named like ours, and data that stays there. No node knows its path."""
    files = {
        "train.py": TRAIN,
        "task.py": TASK,
        "training/__init__.py": "scale = 3\n",
        "job.yaml": JOB,
        ".gitignore": "data/\n",
        "data/x": "y",
    }
    return make(tmp_path / "project", **files)


def paceline(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command as on a laptop: all that it knows is the coordinator's address and a key."""
    environment = {**os.environ, "PACELINE_API_KEY": stack.api_key, "PACELINE_SERVER": stack.server, "NO_COLOR": "1"}
    command = [sys.executable, "-m", "paceline.cli.main", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)


def submitted(stack: Stack, *arguments: str) -> dict[str, Any]:
    done = paceline(stack, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    job: dict[str, Any] = json.loads(done.stdout)
    return job


def ended(stack: Stack, job: dict[str, Any]) -> dict[str, Any]:
    found = stack.wait_for_state(job["id"], "completed", "failed", timeout=90)
    assert found["state"] == "completed", f"{found['failure']}\n{output(stack, job)}"
    return found


def output(stack: Stack, job: dict[str, Any]) -> list[str]:
    return [line["text"] for line in stack.get(f"/training/jobs/{job['id']}/logs", limit=1000)["items"]]


def test_a_folder_trains_comes_back_and_runs_again(stack: Stack, project: Path, tmp_path: Path) -> None:
    job = submitted(stack, "submit", str(project / "job.yaml"), "--workdir", str(project))
    (project / "training" / "__init__.py").write_text("scale = 5\n")  # what is sent is sent
    ended(stack, job)
    assert output(stack, job) == ["sum 6.0 started 0"] * 2
    back = tmp_path / "back"
    assert paceline(stack, "code", job["id"], "-d", str(back)).returncode == 0
    assert sorted(str(path.relative_to(back)) for path in back.rglob("*") if path.is_file()) == [
        ".gitignore", "job.yaml", "task.py", "train.py", "training/__init__.py",
    ]  # fmt: skip
    assert (back / "training" / "__init__.py").read_text() == "scale = 3\n"
    taken = paceline(stack, "code", job["id"], "-d", str(back))
    assert (taken.returncode, "is there already" in taken.stderr) == (2, True)
    again = submitted(stack, "rerun", job["id"], "--set", "resources.nodes=1")
    changed = submitted(stack, "rerun", job["id"], "--workdir", str(project), "--name", "changed")
    ended(stack, again), ended(stack, changed)
    assert (output(stack, again), output(stack, changed)) == (["sum 3.0 started 0"], ["sum 10.0 started 0"] * 2)


def test_an_entrypoint_finds_its_packages(stack: Stack, project: Path) -> None:
    length = {"steps": 3, "global_batch_size": 4, "eval_every_steps": None}
    spec = {"name": "shipped-task", "entrypoint": "task:make", "training": length, "resources": {"nodes": 2}}
    (project / "task.json").write_text(json.dumps(spec))
    job = submitted(stack, "submit", str(project / "task.json"), "--workdir", str(project))
    assert ended(stack, job)["progress"]["step"] == 3


def test_what_a_script_wrote_is_there_after_a_rank_was_killed(stack: Stack, project: Path, tmp_path: Path) -> None:
    held = f"environment.variables.HOLD={tmp_path / 'go'}"
    job = submitted(stack, "submit", str(project / "job.yaml"), "--workdir", str(project), "--set", held)
    wait_until("two lines", lambda: len(output(stack, job)) == 2, 60)
    places = {rank["rank"]: rank for rank in stack.job(job["id"])["ranks"]}
    wait_until("the file", lambda: list(Path(stack.data).glob(f"agents/*/jobs/{job['id']}/work/starts.txt")), 20)
    os.kill(places[1]["pid"], signal.SIGKILL)
    wait_until("two more lines", lambda: len(output(stack, job)) == 4, 90)
    (tmp_path / "go").touch()
    ended(stack, job)
    assert sorted(output(stack, job)) == ["sum 6.0 started 0"] * 3 + ["sum 6.0 started 1"]


def test_what_stands_in_the_way_is_named_before_anything_is_sent(stack: Stack, project: Path) -> None:
    (project / ".pacelineignore").write_text("train.py\n")
    refused = paceline(stack, "submit", str(project / "job.yaml"), "--workdir", str(project))
    assert refused.returncode == 2
    assert "script.path: train.py is left out of the bundle" in refused.stderr
    assert "add !train.py to .pacelineignore" in refused.stderr
    (project / ".pacelineignore").unlink()
    refused = paceline(stack, "submit", str(project / "job.yaml"), "--workdir", str(project), "--set", "script.path=trian.py")
    assert "there is no trian.py in" in refused.stderr
    assert "near it: train.py" in refused.stderr
    (project / "out").symlink_to("/etc")
    refused = paceline(stack, "submit", str(project / "job.yaml"), "--workdir", str(project))
    assert "out is a link to /etc, outside of" in refused.stderr
