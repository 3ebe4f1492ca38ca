"""Command lines of torchrun, each run as it stands under torchrun and behind `paceline run`: the same ranks with the same variables and arguments."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from paceline.cli.exits import ExitCode
from tests.e2e.stack import Stack
from tests.ports import free_port

TEST_SECONDS = 300
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(TEST_SECONDS)]
AGENTS, SLOTS = 2, 2

PROBE = """
import json, os, sys
import torch, torch.distributed as dist

NAMES = (
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
    "TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS OMP_NUM_THREADS"
).split()
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
if f"--fails={attempt}" in sys.argv:
    sys.exit(3)
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
found = {name: os.environ.get(name) for name in NAMES}
found |= {"argv": sys.argv[1:], "name": __name__, "package": __package__, "beside": os.path.basename(sys.path[0]), "sum": int(total)}
found |= {"elastic": dist.is_torchelastic_launched(), "threads": torch.get_num_threads(), "here": os.path.basename(os.getcwd())}
os.write(1, f"probe:{json.dumps(found, sort_keys=True)}\\n".encode())  # in one piece: ranks of torchrun share a pipe
dist.destroy_process_group()
"""


class Line(NamedTuple):
    """What is typed, and what the shell presets."""

    words: str
    variables: Mapping[str, str] = {}
    differs_in: tuple[str, ...] = ()


LINES = {
    "ranks": Line("--nproc-per-node 2 probe.py --lr 0.1 --nnodes 3"),
    "underscores": Line("--nproc_per_node=2 --nnodes=1 probe.py"),
    "standalone": Line("--standalone --nproc-per-node 2 probe.py"),
    "rendezvous": Line(
        "--rdzv-backend c10d --rdzv-endpoint localhost:0 --rdzv-id 7 --rdzv-conf join_timeout=60 --nproc-per-node 2 probe.py"
    ),
    "master": Line("--master-addr 127.0.0.1 --master-port {port} --node-rank 0 --nproc-per-node 2 probe.py"),
    "module": Line("--nproc-per-node 2 -m package.probe one two"),
    "shell-script": Line("--standalone --nproc-per-node 2 --no-python ./probe.sh one two"),
    "program": Line("--standalone --nproc-per-node 2 --no-python python probe.py one"),
    # torchrun runs it within a program of its own, so that the modules beside the script are not found: here they are, as for any script
    "run-path": Line("--standalone --nproc-per-node 2 --run-path probe.py one", differs_in=("beside", "package")),
    "restarts": Line("--standalone --max-restarts 2 --nproc-per-node 2 probe.py --fails=0"),
    "too-few-restarts": Line("--standalone --max-restarts 1 --nproc-per-node 2 probe.py --fails=0 --fails=1"),
    "virtual-local-rank": Line("--standalone --virtual-local-rank --nproc-per-node 2 probe.py"),
    "preset": Line("probe.py", {"PET_NPROC_PER_NODE": "2", "PET_STANDALONE": "1"}),
    "threads": Line("--standalone --nproc-per-node 2 probe.py", {"OMP_NUM_THREADS": "2"}),
    "log-files": Line("--standalone --nproc-per-node 2 --log-dir logs --tee 3 probe.py"),
    "what-is-ours": Line("--standalone --monitor-interval 0.5 --start-method spawn --shutdown-timeout 5 --nproc-per-node 2 probe.py"),
}


@pytest.fixture(scope="module")
def two_by_two(empty_stack: Stack) -> Stack:
    """Two agents of two slots each."""
    empty_stack.up(free_port(), agents=AGENTS, slots=SLOTS)
    return empty_stack


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "my project"
    (folder / "package").mkdir(parents=True)
    for place in (folder / "probe.py", folder / "package" / "probe.py"):
        place.write_text(PROBE)
    script = folder / "probe.sh"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" probe.py "$@"\n')
    script.chmod(0o755)
    return folder


def run(command: list[str], project: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PET_", "OMP_"))}
    path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    return subprocess.run(command, cwd=project, env=kept | path | dict(variables), capture_output=True, text=True, timeout=TEST_SECONDS / 2)


def under_torchrun(line: Line, project: Path) -> subprocess.CompletedProcess[str]:
    words = line.words.format(port=free_port()).split()
    return run([sys.executable, "-m", "torch.distributed.run", *words], project, line.variables)


def under_paceline(stack: Stack, line: Line, project: Path, *own: str) -> subprocess.CompletedProcess[str]:
    words = line.words.format(port=free_port()).split()
    named = [word for name in line.variables if name.startswith("OMP_") for word in ("--env", name)]
    signed_in = {"PACELINE_SERVER": stack.server, "PACELINE_API_KEY": stack.api_key, "HOME": str(project.parent)}
    return run([sys.executable, "-m", "paceline.cli.main", "run", *own, *named, *words], project, {**line.variables, **signed_in})


def ranks_of(output: str, without: Collection[str] = ()) -> list[dict[str, Any]]:
    """What each rank has said of itself, in their order."""
    found = [json.loads(line.partition("probe:")[2]) for line in output.splitlines() if "probe:" in line]
    return [{key: each[key] for key in each if key not in without} for each in sorted(found, key=lambda each: int(each["RANK"]))]


@pytest.mark.parametrize("name", LINES)
def test_a_line_of_torchrun_starts_the_same_ranks(two_by_two: Stack, project: Path, name: str) -> None:
    theirs, ours = under_torchrun(LINES[name], project), under_paceline(two_by_two, LINES[name], project)
    ignored = LINES[name].differs_in
    assert ranks_of(ours.stdout, ignored) == ranks_of(theirs.stdout, ignored), ours.stderr
    assert ours.returncode == (0 if theirs.returncode == 0 else ExitCode.JOB_FAILED), ours.stderr
    assert bool(ranks_of(ours.stdout)) == (theirs.returncode == 0)


def test_lines_of_other_ranks_are_left_out(two_by_two: Stack, project: Path) -> None:
    line = Line("--standalone --nproc-per-node 2 --local-ranks-filter 1 probe.py")
    assert [each["RANK"] for each in ranks_of(under_paceline(two_by_two, line, project).stdout)] == ["1"]


def test_as_many_nodes_as_there_are_within_the_range(two_by_two: Stack, project: Path) -> None:
    ranks = ranks_of(under_paceline(two_by_two, Line("--nnodes 1:3 --nproc-per-node 2 --max-restarts 3 probe.py"), project).stdout)
    assert [(each["WORLD_SIZE"], each["GROUP_RANK"], each["GROUP_WORLD_SIZE"], each["sum"]) for each in ranks] == [
        ("4", group, "2", 4) for group in ("0", "0", "1", "1")
    ]


@pytest.mark.parametrize("kind", ["auto", "cpu"])
def test_a_kind_of_device_is_as_many_ranks_as_a_node_has_slots(two_by_two: Stack, project: Path, kind: str) -> None:
    ranks = ranks_of(under_paceline(two_by_two, Line(f"--nproc-per-node {kind} probe.py"), project).stdout)
    assert [each["WORLD_SIZE"] for each in ranks] == [str(SLOTS)] * SLOTS


def test_a_folder_that_is_sent_along_runs_as_the_one_here(two_by_two: Stack, project: Path) -> None:
    line = Line("--nnodes 2 --nproc-per-node 1 -m package.probe one")
    ranks = ranks_of(under_paceline(two_by_two, line, project, "--workdir", ".").stdout)
    assert [(each["argv"], each["GROUP_RANK"], each["package"]) for each in ranks] == [(["one"], "0", "package"), (["one"], "1", "package")]
