"""A project whose packages have the names of Paceline's folders, and of dask's: it imports its own, with `import paceline` beside them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import ROOT, Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

ROOMS = ("api", "cli", "cluster", "db", "distributed", "monitoring", "parallelism", "scripts", "tests", "training")
LOOKS = "\n".join(
    [
        *(f"from {room}.models import Net as {room}_net" for room in ROOMS),
        f"assert [{', '.join(f'{room}_net' for room in ROOMS)}] == {list(ROOMS)}, 'some are not the project\\'s own'",
        "import paceline",
        "from paceline import Dataset, Stream, Task, Trainer, Unit, log, world",
    ]
)
SCRIPT = f"""{LOOKS}
import os
import torch, torch.distributed as dist

dist.init_process_group("gloo") if "RANK" in os.environ else None
total = torch.ones(1)
dist.all_reduce(total) if "RANK" in os.environ else None
log(1, loss=float(total))
print("rank", world().rank, "of", int(total), "imports its own")
"""
ENTRYPOINT = f"""{LOOKS}
import torch

class Points:
    def __len__(self):
        return 64

    def batch(self, indices, generator):
        inputs = indices[:, None].float() / 64
        return inputs, 2 * inputs

def make_task(spec):
    print("rank", world().rank, "of", world().world_size, "imports its own")
    return Task(model=torch.nn.Linear(1, 1), train=Points(), loss=lambda model, batch: (torch.nn.functional.mse_loss(model(batch[0]), batch[1]), {{}}))
"""


def project(folder: Path, *, with_init: bool = True) -> Path:
    for room in ROOMS:
        (folder / room).mkdir()
        (folder / room / "models.py").write_text(f"Net = {room!r}")
        if with_init:
            (folder / room / "__init__.py").write_text("")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "task.py").write_text(ENTRYPOINT)
    return folder


def spec(folder: Path, ranks: int, **workload: Any) -> dict[str, Any]:
    environment = {"working_directory": str(folder)}
    return {"name": "names", "resources": {"nodes": ranks}, "environment": environment, "fault_tolerance": {"max_restarts": 0}, **workload}


@pytest.mark.parametrize(("ranks", "with_init"), [(1, True), (2, True), (2, False)])
def test_a_job_imports_the_users_packages(stack: Stack, tmp_path: Path, ranks: int, with_init: bool) -> None:
    folder = project(tmp_path, with_init=with_init)
    lines = {f"rank {rank} of {ranks} imports its own" for rank in range(ranks)}
    fresh = {"environment": {"working_directory": str(folder), "variables": {"PYTHONHASHSEED": "1"}}}
    script = spec(folder, ranks, script={"path": "train.py"})
    entrypoint = spec(folder, ranks, entrypoint="task:make_task", training={"steps": 2, "global_batch_size": 8, "eval_every_steps": None})
    for job in (script, script | fresh, entrypoint, entrypoint | fresh):
        ended = stack.wait_for_state(stack.submit(job), "completed", "failed", timeout=60)
        said = [line["text"] for line in stack.get(f"/training/jobs/{ended['id']}/logs", limit=1000)["items"]]
        assert (ended["state"], lines - set(said)) == ("completed", set()), "\n".join(said)


@pytest.mark.parametrize(
    "launcher", [[], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]], ids=["python", "torchrun"]
)
def test_so_does_the_same_file_without_a_coordinator(tmp_path: Path, launcher: list[str]) -> None:
    folder = project(tmp_path)
    environment = os.environ | {"PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, *launcher, str(folder / "train.py")], cwd=folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "rank 0 of" in done.stdout
    assert "step 1 loss" in done.stdout


@pytest.mark.parametrize(
    "command", [[str(Path(sys.executable).with_name("paceline"))], [sys.executable, "-m", "paceline.cli.main"]], ids=["paceline", "-m"]
)
def test_paceline_is_typed_in_its_folder(stack: Stack, tmp_path: Path, command: list[str]) -> None:
    """The project's own `cli/main.py` ran in place of the command where `PYTHONPATH` named the folder."""
    folder = project(tmp_path)
    (folder / "cli" / "main.py").write_text("raise SystemExit('this is the project')")
    environment = os.environ | {
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
        "PACELINE_SERVER": stack.server,
        "PACELINE_API_KEY": stack.api_key,
    }
    job_id = stack.submit(spec(folder, 2, script={"path": "train.py"}))
    done = subprocess.run([*command, "jobs", "--json"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert job_id in [job["id"] for job in json.loads(done.stdout)]
    stack.wait_for_state(job_id, "completed", "failed", timeout=60)
