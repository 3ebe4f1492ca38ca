"""docs/scripts.md, "In a Slurm job": its batch scripts, as they stand there, on a real Slurm with three slurmd on this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from paceline.cli.local.private import SHORT_PLACE
from paceline.cli.local.processes import all_processes
from scripts.slurm_cluster import SlurmCluster, missing_programs
from tests.e2e.stack import ROOT, wait_until
from tests.paceline.documented import block_below
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

JOB_SECONDS, END_SECONDS = 300.0, 60.0
ON_ONE_NODE = block_below("`paceline run` stands where")
ON_TWO_NODES = block_below("`paceline run --nnodes 2` is typed on the login node.")

#: Says its place, or the one that Lightning takes it for; saves at SIGTERM, and says when it is told to end.
TRAIN = """
import os, signal, sys, time
import torch, torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
place = f"rank {dist.get_rank()} of {dist.get_world_size()}, {os.environ['LOCAL_RANK']} here"
if os.path.exists("lightning"):
    from lightning_fabric.plugins.environments import SLURMEnvironment, TorchElasticEnvironment

    environment = next(each for each in (TorchElasticEnvironment, SLURMEnvironment) if each.detect())()  # in Lightning's order
    place = f"rank {environment.global_rank()} of {environment.world_size()}, {environment.local_rank()} here"
print(place, "in job", os.environ["SLURM_JOB_ID"], "sum", int(total), flush=True)

def save(*_):
    print("told to end", flush=True)
    time.sleep(2)
    print("saved", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
dist.barrier()
if os.path.exists("fail"):
    sys.exit(3)
if os.path.exists("stay"):
    time.sleep(600)
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Login:
    """A shell on the login node: a project, a home and a folder for temporary files, all of the test's own."""

    slurm: SlurmCluster
    home: Path
    temporary: Path

    def project(self, name: str, *files: str) -> Path:
        folder = self.home / name
        folder.mkdir()
        (folder / "train.py").write_text(TRAIN)
        for file in files:
            (folder / file).touch()
        return folder

    def submit(self, folder: Path, script: str) -> str:
        """Submit the script from this folder. Returns the job's id."""
        kept = {name: value for name, value in self.slurm.environment.items() if not name.startswith(("PACELINE_", "SLURM_JOB", "XDG_"))}
        own = {"HOME": str(self.home), "TMPDIR": str(self.temporary), "PATH": f"{self.home / 'bin'}:{os.environ['PATH']}"}
        own |= {"CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1"}
        command = ["sbatch", "--parsable", "--output=out.txt"]
        done = subprocess.run(command, input=script, cwd=folder, env=kept | own, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    def end_of(self, job: str) -> tuple[str, str]:
        """Wait for the job's end. Returns its state and exit code, as Slurm tells them."""

        def ended() -> tuple[str, str] | None:
            told = dict(re.findall(r"(JobState|ExitCode)=(\S+)", self.slurm.command("scontrol", "show", "job", job)))
            return None if told["JobState"] in ("PENDING", "RUNNING", "COMPLETING") else (told["JobState"], told["ExitCode"])

        return wait_until(f"the end of job {job}", ended, JOB_SECONDS)

    def left(self) -> list[str]:
        """Processes that know this home, and folders for temporary files."""
        return [*filter(None, map(self._ours, all_processes())), *map(str, self.temporary.glob("paceline*"))]

    def _ours(self, process: psutil.Process) -> str:
        try:
            ours = str(self.home) in process.environ().get("HOME", "") and process.status() != psutil.STATUS_ZOMBIE
            return " ".join(process.cmdline()) if ours else ""
        except psutil.Error:
            return ""


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Login]:
    if missing := missing_programs():
        pytest.skip(f"no {', '.join(missing)} here: apt-get install slurm-wlm munge")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    slurm = SlurmCluster(tmp_path_factory.mktemp("slurm"), free_port(), kill_wait=30, min_job_age=600)
    home = tmp_path_factory.mktemp("home")
    (home / "bin").mkdir()
    (home / "bin" / "paceline").write_text(f'#!/bin/bash\nPYTHONPATH={ROOT} exec {sys.executable} -m paceline.cli.main "$@"\n')
    (home / "bin" / "paceline").chmod(0o755)
    slurm.start()
    try:
        with tempfile.TemporaryDirectory(dir=SHORT_PLACE, prefix="t-") as temporary:
            yield Login(slurm, home, Path(temporary))
    finally:
        slurm.stop()


def places(output: str, job: str) -> set[str]:
    """The places that the ranks of this job have printed."""
    return set(re.findall(rf"(rank \d of \d, \d here) in job {job} sum", output))


def until_said(folder: Path, words: str, times: int) -> None:
    def said() -> bool:
        return (folder / "out.txt").exists() and (folder / "out.txt").read_text().count(words) == times

    wait_until(f"{times} times {words!r}", said, JOB_SECONDS)


def test_two_jobs_on_one_machine_end_with_the_code_of_their_script(login: Login) -> None:
    good, bad = login.project("good", "lightning"), login.project("bad", "fail")
    jobs = [login.submit(folder, ON_ONE_NODE) for folder in (good, bad)]
    assert [login.end_of(job) for job in jobs] == [("COMPLETED", "0:0"), ("FAILED", "10:0")]
    for folder, job in zip((good, bad), jobs, strict=True):
        output = (folder / "out.txt").read_text()
        assert places(output, job) == {"rank 0 of 2, 0 here", "rank 1 of 2, 1 here"}, output
        assert "login?token=" not in output
    assert "train failed: " in (bad / "out.txt").read_text()
    assert login.left() == []


def output_of_cancelled(login: Login, name: str, script: str, ranks: int) -> str:
    """What a job of so many ranks has printed that is cancelled while they train, once it has ended and left nothing."""
    folder = login.project(name, "stay")
    job = login.submit(folder, script)
    until_said(folder, f"sum {ranks}", ranks)
    login.slurm.command("scancel", job)
    assert login.end_of(job)[0] == "CANCELLED"
    wait_until("nothing to be left", lambda: login.left() == [], END_SECONDS)
    return (folder / "out.txt").read_text()


def test_scancel_leaves_each_rank_the_time_to_save(login: Login) -> None:
    output = output_of_cancelled(login, "cancelled", ON_ONE_NODE, 2)
    assert [output.count(words) for words in ("told to end", "saved", "train was cancelled")] == [2, 2, 1], output


def test_a_script_over_two_nodes_runs_to_its_end(login: Login) -> None:
    folder = login.project("over-two")
    job = login.submit(folder, ON_TWO_NODES)
    assert login.end_of(job) == ("COMPLETED", "0:0"), (folder / "out.txt").read_text()
    assert places((folder / "out.txt").read_text(), job) == {f"rank {rank} of 4, {rank % 2} here" for rank in range(4)}


def test_scancel_leaves_the_ranks_on_two_nodes_the_time_to_save(login: Login) -> None:
    output = output_of_cancelled(login, "cancelled-over-two", ON_TWO_NODES, 4)
    assert [output.count(words) for words in ("told to end", "saved")] == [4, 4], output
