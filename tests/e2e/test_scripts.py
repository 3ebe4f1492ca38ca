"""Scripts as people bring them: each failure is told with its rank and its line, and every form of a program runs."""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.e2e.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

CODE = Path(__file__).parent / "user_code"
#: The rank at fault may be heard of after the one that it dragged down.
CULPRIT_SECONDS = 15.0
#: So that a rank is executed instead of forked.
IN_A_NEW_INTERPRETER = {"PYTHONHASHSEED": "1"}


def submit(stack: Stack, script: dict[str, Any], folder: Path = CODE, ranks: int = 2, **variables: str) -> dict[str, Any]:
    """To its end."""
    spec = {
        "name": "script",
        "script": script,
        "resources": {"nodes": ranks},
        "environment": {"working_directory": str(folder), "variables": variables},
        "fault_tolerance": {"max_restarts": 0},
    }
    return stack.wait_for_state(stack.submit(spec), "completed", "failed", timeout=90)


def output(stack: Stack, job: dict[str, Any]) -> list[str]:
    return [line["text"] for line in stack.get(f"/training/jobs/{job['id']}/logs", limit=1000)["items"]]


FAULTS = {
    "exception": ("exception", "ValueError", "labels out of range: got 12, expected < 10", "raise ValueError"),
    "recorded": ("exception", "ValueError", "labels out of range: got 12, expected < 10", "raise ValueError"),
    "cleans_up_slowly": ("exception", "ValueError", "bad sample 17", 'raise ValueError("bad'),
    "leaves_early": ("exit", "", "ended with code 0 while other ranks still communicated with it", ""),
    "leaves_and_saves": ("exit", "", "still ran, and had raised nothing, after all others had lost their connection", ""),
    "segfault": ("signal", "", "killed by SIGSEGV", "ctypes.string_at"),
    "exit_code": ("exit", "", "exited with code 3", ""),
    "message": ("exception", "SystemExit", "config file missing: data.yaml", 'sys.exit("config'),
    "memory": ("out_of_memory", "RuntimeError", "out of memory: ", "torch.empty"),
}


#: A new interpreter leaves its words on the output alone.
LAST_LINE = "; its last line: config file missing: data.yaml"
#: torch aborts an interpreter that ends while a thread of its process group runs: now and then, on a busy machine.
EITHER = (f"exited with code 1{LAST_LINE}", f"aborted by a thread of its own while it exited (SIGABRT){LAST_LINE}")
TOLD_BY_OUTPUT: dict[str, tuple[str, str, str | tuple[str, ...], str]] = {"message": ("exit", "", EITHER, "")}


@pytest.mark.parametrize(
    ("case", "variables"),
    [
        *((case, {}) for case in FAULTS if case != "leaves_and_saves"),  # a warm rank's group lives until the process ends
        *(
            (case, IN_A_NEW_INTERPRETER) for case in ("exception", "recorded", "cleans_up_slowly", "leaves_and_saves", "message")
        ),  # told from output and error file
    ],
)
def test_the_rank_at_fault_is_named_with_its_line(stack: Stack, case: str, variables: dict[str, Any]) -> None:
    kind, exception, message, line = (TOLD_BY_OUTPUT if variables else {}).get(case, FAULTS[case])
    job = submit(stack, {"path": "failing.py", "args": [case]}, **variables)
    failure = wait_until("the culprit's word", lambda: (known := stack.job(job["id"])["failure"])["rank"] == 1 and known, CULPRIT_SECONDS)
    assert (failure["rank"], failure["kind"], failure["exception"]) == (1, kind, exception), failure
    assert failure["message"].startswith(message)
    assert [(victim["rank"], victim["share"]) for victim in failure["victims"]] == [(0, "victim")]
    if line:
        number = next(number for number, text in enumerate((CODE / "failing.py").read_text().splitlines(), start=1) if line in text)
        assert failure["where"] == f"fail in failing.py:{number}"


def test_ranks_with_the_same_failure_are_told_together(stack: Stack) -> None:
    failure = submit(stack, {"path": "failing.py", "args": ["import"]})["failure"]
    assert failure["exception"] == "ModuleNotFoundError"
    assert [victim["share"] for victim in failure["victims"]] == ["same"]


#: The barrier: rank 0 serves the store in which the others still are.
MEET = """
import sys
import torch.distributed as dist

dist.init_process_group("gloo")
sys.stdout.write(f"{dist.get_world_size()} {sys.argv[1:]}\\n")  # in one piece: two ranks of one launcher share an unbuffered file
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    "script",
    [
        {"path": "meet.py", "args": ["--lr", "1e4"]},
        {"module": "shop.meet", "args": ["--lr", "1e4"]},
        {"command": ["bash", "-c", "exec python meet.py --lr 1e4"]},
        {"command": "python -m shop.meet --lr 1e4"},
    ],
    ids=["path", "module", "shell", "command"],
)
def test_every_form_of_a_program_joins_its_world(stack: Stack, tmp_path: Path, script: dict[str, Any]) -> None:
    (tmp_path / "shop").mkdir()
    for name in ("meet.py", "shop/__init__.py", "shop/meet.py"):
        (tmp_path / name).write_text("" if name.endswith("__init__.py") else MEET)
    job = submit(stack, script, tmp_path)
    assert job["state"] == "completed", job["failure"]
    assert output(stack, job) == ["2 ['--lr', '1e4']"] * 2


def test_a_launcher_of_its_own_runs_in_one_slot(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "meet.py").write_text(MEET)
    job = submit(stack, {"command": "torchrun --nproc-per-node 2 --master-port 0 --standalone meet.py"}, tmp_path, ranks=1)
    assert job["state"] == "completed", job["failure"]
    assert output(stack, job).count("2 []") == 2


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ({"module": "nowhere.train"}, "script.module=nowhere.train: no module 'nowhere' on this node, seen from"),
        ({"command": "no-such-program --lr 1"}, "script.command=no-such-program: no such program on this node, seen from"),
    ],
)
def test_a_program_that_its_node_does_not_have_is_named(stack: Stack, script: dict[str, Any], message: str) -> None:
    failure = submit(stack, script)["failure"]
    assert failure["kind"] == "invalid_input"
    assert failure["message"].startswith(message)


TASK = """
import sys
import my_library
import torch
from paceline.training.task import Task

print("hash randomization", sys.flags.hash_randomization, flush=True)

class Numbers:
    def __len__(self):
        return 64

    def batch(self, indices, generator):
        return (indices.float()[:, None],)

def make(spec):
    return Task(model=torch.nn.Linear(1, 1), train=Numbers(), loss=lambda model, batch: (my_library.loss(model(batch[0])), {}))
"""


def test_variables_that_act_at_the_start_of_python_act_in_entrypoints_too(stack: Stack, tmp_path: Path) -> None:
    """Forked ranks took no notice of PYTHONPATH."""
    (tmp_path / "my_task.py").write_text(TASK)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "my_library.py").write_text("def loss(output):\n    return output.square().mean()\n")
    spec = {
        "name": "with-a-library",
        "resources": {"nodes": 2},
        "entrypoint": "my_task:make",
        "training": {"steps": 3, "global_batch_size": 4, "eval_every_steps": None},
        "environment": {
            "working_directory": str(tmp_path),
            "variables": {"PYTHONPATH": str(tmp_path / "lib"), "PYTHONHASHSEED": "0"},
        },
    }
    job = stack.wait_for_state(stack.submit(spec), "completed", "failed", timeout=90)
    assert job["state"] == "completed", job["failure"]
    assert "hash randomization 0" in output(stack, job)


SAVES_BESIDE_ITSELF = """
import os

if not os.path.exists("saved.pt"):
    open("saved.pt", "w").close()
    raise RuntimeError("the first attempt")
print("goes on from saved.pt")
"""


def test_what_a_script_without_a_working_directory_saves_is_there_after_a_restart(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "saves.py").write_text(SAVES_BESIDE_ITSELF)
    spec = {"name": "saves", "script": {"path": str(tmp_path / "saves.py")}, "fault_tolerance": {"max_restarts": 1}}
    job = stack.wait_for_state(stack.submit(spec), "completed", "failed", timeout=90)
    assert (job["state"], job["restarts"]) == ("completed", 1), job["failure"]
    assert "goes on from saved.pt" in output(stack, job)
    assert job["progress"]["saved_file"]["path"].endswith("/work/saved.pt")


ELSEWHERE = """
import importlib.util, os, sys
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
known = [name for name in ("paceline", "msgspec", "pydantic") if importlib.util.find_spec(name)]
sys.stdout.write(f"{sys.prefix} {torch.__file__} {known}\\n" + "".join(f"path:{each}\\n" for each in sys.path))
dist.destroy_process_group()
"""
#: What torch imports, in site-packages.
TORCHS = (
    "torch",
    "torchgen",
    "functorch",
    "typing_extensions.py",
    "sympy",
    "mpmath",
    "networkx",
    "jinja2",
    "markupsafe",
    "filelock",
    "fsspec",
    "numpy*",
)


@pytest.mark.release
def test_a_rank_in_an_environment_of_the_nodes_has_nothing_of_its_agents_on_its_path(stack: Stack, tmp_path: Path) -> None:
    """A virtual environment with a torch of its own."""
    venv.create(tmp_path / "own", symlinks=True)
    (packages,) = (tmp_path / "own" / "lib").glob("python*/site-packages")
    here = Path(torch.__file__).parents[1]
    for name in (*TORCHS, "torch-*.dist-info"):
        for each in here.glob(name):
            (packages / each.name).symlink_to(each)
    (tmp_path / "train.py").write_text(ELSEWHERE)
    spec = {
        "name": "elsewhere",
        "script": {"path": "train.py"},
        "resources": {"nodes": 2},
        "environment": {
            "working_directory": str(tmp_path),
            "python": str(tmp_path / "own" / "bin" / "python"),
            "variables": {"PYTHONPATH": ""},
        },
        "fault_tolerance": {"max_restarts": 0},
    }
    job = stack.wait_for_state(stack.submit(spec), "completed", "failed", timeout=90)
    assert job["state"] == "completed", job["failure"]
    lines = output(stack, job)
    assert lines.count(f"{tmp_path / 'own'} {packages / 'torch' / '__init__.py'} []") == 2, lines
    path = {Path(line.removeprefix("path:")) for line in lines if line.startswith("path:")}
    assert {each for each in path if not each.is_relative_to(sys.base_prefix)} == {tmp_path, packages}
