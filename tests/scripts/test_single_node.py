"""The lines of other systems for one machine: two shell scripts and the MNIST baseline, each as its users type it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.own_loop_example import ROOT, RUN_TIMEOUT_SECONDS, environment
from tests.training.data.test_mnist import write

pytestmark = pytest.mark.timeout(300)
SCRIPTS = ROOT / "scripts"


def run(*command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=environment(**variables), capture_output=True, text=True, timeout=RUN_TIMEOUT_SECONDS, check=False
    )


@pytest.mark.slow("the launch script, and ranks in interpreters of their own")
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_strategy_trains_on_this_machine_alone(strategy: str, tmp_path: Path) -> None:
    """Variables of several machines may be left in the shell."""
    line = (str(SCRIPTS / f"run_{strategy}_single_node.sh"), "2", "64", "--epochs", "1")
    done = run(*line, folder=tmp_path, MASTER_ADDR="node0", NODE_RANK="1")
    assert done.returncode == 0, done.stderr
    assert "batches of 64 on each of 2 ranks" in done.stdout
    assert "epoch 1:" in done.stdout


def test_without_a_number_there_is_a_rank_for_each_gpu_or_one(tmp_path: Path) -> None:
    done = run(str(SCRIPTS / "run_ddp_single_node.sh"), folder=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert "batches of 32 on each of 1 ranks" in done.stdout


def test_the_baseline_is_the_same_every_time(tmp_path: Path) -> None:
    write(tmp_path)
    line = (sys.executable, str(SCRIPTS / "train_mnist_baseline.py"), "--epochs", "3", "--batch-size", "5", "--data-dir", str(tmp_path))
    first, again = (run(*line, folder=tmp_path) for _ in range(2))
    assert first.returncode == 0, first.stderr

    def losses(printed: str) -> list[str]:
        return [line for line in printed.splitlines() if line.startswith("epoch ")]

    assert len(losses(first.stdout)) == 3
    assert losses(first.stdout) == losses(again.stdout)
