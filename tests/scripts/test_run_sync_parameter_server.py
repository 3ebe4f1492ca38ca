"""The script that shows the parameter server: in real processes, beside serial SGD, with a server that is killed and bad values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts.run_sync_parameter_server import parse

SCRIPT = Path(__file__).parents[2] / "scripts" / "run_sync_parameter_server.py"
TIMEOUT_SECONDS = 120.0


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(SCRIPT), *arguments], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)


def test_a_killed_server_goes_on_from_a_checkpoint_that_is_whole(tmp_path: Path) -> None:
    """The newest is damaged between two starts: it is named, and the one before takes its place."""
    options = ("--world-size", "3", "--parameter-dim", "9", "--shard-size", "4", "--checkpoint", str(tmp_path))
    first = run(*options, "--num-steps", "4", "--kill-server-at", "3")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "server 0 was killed in step 3; the 2 other ranks were freed" in first.stdout
    assert "generation 2 goes on from the checkpoint of step 2" in first.stdout
    assert "all right: 4 steps, every value as in one process, to the last bit" in first.stdout
    newest = tmp_path / "server-0.step-00000004.bin"
    content = bytearray(newest.read_bytes())
    content[-1] ^= 1
    newest.write_bytes(content)
    second = run(*options, "--num-steps", "5")
    assert second.returncode == 0, second.stdout + second.stderr
    assert f"WARNING {newest}: its content has SHA-256" in second.stdout
    assert "generation 1 goes on from the checkpoint of step 2" in second.stdout


def test_the_line_of_the_readme_comes_to_the_values_of_one_process() -> None:
    found = run("--world-size", "4", "--num-steps", "5", "--parameter-dim", "40", "--shard-size", "16")
    assert found.returncode == 0, found.stdout + found.stderr
    assert "all right: 5 steps, every value as in one process, to the last bit" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--world-size", "1"], "--world-size 1 leaves no worker beside --servers 1; use 2 or more"),
        (["--world-size", "65"], "--world-size 65 is more than the 64 processes"),
        (["--parameter-dim", "1", "--servers", "2"], "--parameter-dim 1 is fewer than --servers 2"),
        (["--num-steps", "3", "--kill-server-at", "4"], "--kill-server-at 4 is beyond the last step"),
        (["--num-steps", "0"], "'0' is no whole number of at least 1"),
        (["--shard-size", "x"], "'x' is no whole number of at least 1"),
    ],
)
def test_bad_values_are_refused_with_the_limit(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
