"""`paceline run` where no coordinator is configured: a real script on two ranks, its output, its end, and nothing left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
import pytest

from paceline.cli.local.private import SHORT_PLACE
from paceline.cli.local.processes import all_processes
from tests.e2e.stack import ROOT
from tests.e2e.torchrun import PROGRAMS, losses, under_torchrun
from tests.waiting import wait_until

RUN_SECONDS = 150.0
INTERRUPT_SECONDS = 45.0
TEST_SECONDS = 400
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(TEST_SECONDS)]

SCRIPT = """
import os, signal, sys, time
import torch, torch.distributed as dist
from beside import word

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
rank = dist.get_rank()
if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "--save" in sys.argv:
    signal.signal(signal.SIGTERM, lambda *_: (print("told to end", flush=True), time.sleep(1), print("saved", flush=True), sys.exit(0)))
print(word, rank, int(total), sys.argv[1:], os.environ.get("MY_OWN"), flush=True)
if "--fail" in sys.argv and rank == 1:
    raise ValueError("bad sample 17")
if "--sleep" in sys.argv:
    time.sleep(600)
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Laptop:
    """A home, a folder for temporary files and a project, all of this test's own; no coordinator is configured."""

    place: Path
    temporary: Path  # short enough for sockets to lie in it

    @property
    def project(self) -> Path:
        return self.place / "my project"

    def start(self, *words: str) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "SLURM_", "XDG_"))}
        own = {"HOME": str(self.place), "TMPDIR": str(self.temporary), "PYTHONPATH": str(ROOT), "MY_OWN": "42", "NO_COLOR": "1"}
        return subprocess.Popen(
            [sys.executable, "-m", "paceline.cli.main", "run", *words],
            cwd=self.project,
            env=kept | own,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def left(self) -> list[str]:
        """Processes that know this place, and folders of private coordinators. (torch leaves a cache of its own beside them.)"""
        return [*map(str, self.processes()), *(str(path) for path in self.temporary.glob("*paceline*"))]

    def processes(self) -> list[psutil.Process]:
        return [process for process in all_processes() if self._is_ours(process)]

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            known = str(self.place) in " ".join([*process.cmdline(), *process.environ().values()])
            return known and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            return False


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    with tempfile.TemporaryDirectory(dir=SHORT_PLACE, prefix="t-") as temporary:
        laptop = Laptop(tmp_path, Path(temporary))
        (laptop.project / "src").mkdir(parents=True)
        (laptop.project / "src" / "train.py").write_text(SCRIPT)
        (laptop.project / "src" / "beside.py").write_text("word = 'sum'\n")
        yield laptop
        assert laptop.left() == []


def test_two_ranks_of_a_script_run_to_their_end(laptop: Laptop) -> None:
    process = laptop.start("--standalone", "--nproc-per-node=2", "src/train.py", "--lr=.0003", "1e4", "a b")
    out, err = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode == 0, err
    lines = sorted(line.split("] ", 1)[1] for line in out.splitlines())
    assert lines == [f"sum {rank} 2 ['--lr=.0003', '1e4', 'a b'] 42" for rank in (0, 1)]
    assert "http://127.0.0.1:" in err
    assert "login?token=" not in err, "a file that others may read"


def test_lightning_takes_two_devices_of_one_machine_as_under_torchrun(laptop: Laptop, tmp_path: Path) -> None:
    program = PROGRAMS / "lightning_all_devices.py"
    expected = under_torchrun(program, tmp_path / "torchrun", "2", "1")
    process = laptop.start("--nproc-per-node", "2", str(program), "2", "1")
    out, err = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode == 0, err
    assert losses("\n".join(line.split("] ", 1)[1] for line in out.splitlines() if "] " in line)) == expected


def test_an_exception_is_told_with_its_rank(laptop: Laptop) -> None:
    process = laptop.start("--nproc-per-node", "2", "src/train.py", "--fail")
    out, err = process.communicate(timeout=RUN_SECONDS)
    assert process.returncode == 10, err
    assert "train failed: ValueError on rank 1 (local-1): bad sample 17 (train.py:" in err
    assert "[1] [rank1]: ValueError: bad sample 17" in out.replace("ERROR ", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_end_the_training_within_seconds(laptop: Laptop, number: signal.Signals) -> None:
    process = laptop.start("--nproc-per-node", "2", "src/train.py", "--sleep")
    assert process.stdout is not None
    assert "sum" in process.stdout.readline()
    process.send_signal(number)
    _, err = process.communicate(timeout=INTERRUPT_SECONDS)
    assert process.returncode == 130, err
    assert "train was cancelled" in err


def test_sigterm_to_every_process_tells_each_rank_once_and_its_last_lines_are_printed(laptop: Laptop) -> None:
    """As Slurm sends it: the coordinator ended first, so that nothing was known of what ranks printed since, and each was told twice."""
    process = laptop.start("src/train.py", "--sleep", "--save")
    assert "sum" in read_until(process.stdout, "sum")
    for each in laptop.processes():
        if each.pid != process.pid:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since it was found
                each.terminate()
    process.terminate()  # the last one: it cancels the job, and a rank that had not been told by then would be told twice
    out, err = process.communicate(timeout=INTERRUPT_SECONDS)
    assert process.returncode == 130, err
    assert [line.split("] ", 1)[1] for line in out.splitlines()] == ["told to end", "saved"]
    assert "train was cancelled" in err


def read_until(file: IO[str] | None, words: str) -> str:
    """The lines up to the first one with these words."""
    assert file is not None
    lines = []
    while not lines or words not in lines[-1]:
        lines.append(file.readline())
        assert lines[-1], f"no {words!r} in {lines}"
    return "".join(lines)


def test_ctrl_c_while_it_starts_ends_it(laptop: Laptop) -> None:
    process = laptop.start("--nproc-per-node", "2", "src/train.py", "--sleep")
    assert read_until(process.stderr, "coordinator") == "starting a coordinator on this machine for this run\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=INTERRUPT_SECONDS)
    assert (process.returncode, out, err) == (130, "", "\nstopping; Ctrl-C again kills what is left\n")
    assert laptop.left() == []


def test_ctrl_c_ends_the_clean_up_at_once_when_ranks_do_not_end(laptop: Laptop) -> None:
    process = laptop.start("--shutdown-timeout=300", "src/train.py", "--deaf", "--sleep")
    assert "sum" in read_until(process.stdout, "sum")
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "cancelling train")
    process.send_signal(signal.SIGINT)
    read_until(process.stderr, "stopping")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=INTERRUPT_SECONDS)
    assert process.returncode == 130
    assert laptop.left() == []


def test_kill_9_leaves_nothing_either(laptop: Laptop) -> None:
    process = laptop.start("src/train.py", "--sleep")
    assert process.stdout is not None
    assert "sum" in process.stdout.readline()
    process.kill()
    process.communicate(timeout=INTERRUPT_SECONDS)
    wait_until(lambda: laptop.left() == [], "the end of the stack", seconds=INTERRUPT_SECONDS)
