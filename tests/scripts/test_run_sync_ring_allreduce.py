"""The script that shows the ring: in real processes, beside serial SGD, with a rank that is killed and bad values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.run_sync_ring_allreduce import parse

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_sync_ring_allreduce.py"
TIMEOUT_SECONDS = 120.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def test_every_step_is_that_of_one_process() -> None:
    done = run("--world-size", "4", "--num-steps", "6", "--parameter-dim", "8", "--shard-size", "5")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("on 4 ranks = serial SGD; 48 bytes sent by rank 0") == 6
    assert "all right: 6 steps, every value as in one process, to the last bit" in done.stdout


def test_the_others_of_a_killed_rank_are_freed_and_say_what_they_waited_for() -> None:
    done = run("--world-size", "3", "--num-steps", "4", "--parameter-dim", "50", "--kill-rank-at", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "rank 2 was killed in step 3; the 2 other ranks were freed by their broken connections" in done.stdout
    assert "  rank 0: PeerLostError: rank 2 " in done.stdout
    assert "in step 3, generation 1, from rank 2" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--world-size", "1"], "--world-size 1 is no ring; use 2 or more"),
        (["--world-size", "65"], "--world-size 65 is more than the 64 processes"),
        (["--num-steps", "3", "--kill-rank-at", "4"], "--kill-rank-at 4 is beyond the last step"),
        (["--num-steps", "1e3"], "'1e3' is no whole number of at least 1"),
    ],
)
def test_bad_values_are_refused_with_the_limit(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
