"""Programs as they were found on a user's disk, in their own style, but for the folder that they write to: what they print at the end is what they print
under torchrun, they have curves, and go on after the kill of a rank."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from paceline.training.rank_folder import RankFolder
from tests.e2e.stack import Stack, wait_until
from tests.e2e.torchrun import run_within

PROGRAMS = Path(__file__).parent / "user_code" / "as_found"
SECONDS = 120
CURVE_SECONDS = 20.0
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]


@dataclass(frozen=True)
class Program:
    """A file, the pattern of what it prints of its losses, its arguments under torchrun and in a job of two nodes with a slot each, and its variables.
    `slowly`, `slow_variables`: further ones of the run in which a rank is killed."""

    file: str
    told: str
    arguments: Sequence[str] = ()
    on_two_nodes: Sequence[str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    slowly: Sequence[str] = ()
    slow_variables: Mapping[str, str] = field(default_factory=dict)


FOUND = [
    Program("ddp.py", r"^\[rank \d\] (Epoch \d+) .*(loss [\d.]+)$", slowly=["--sleep", "0.02"]),
    Program("acc.py", r"^(epoch \d+) (steps \d+ loss .*)$", ["--tb"], variables={"ACCELERATE_USE_CPU": "1"}),
    Program("fabric.py", r"^(epoch \d+) (loss .*)$", ["2", "1"], ["1", "2"]),
    Program("fsdp2.py", r"^rank (\d) (done .*)$", slow_variables={"SLEEP": "0.05"}),
    Program("hf.py", r"^done rank (\d) world (2 \d+) .*'train_loss': '?([\d.]+)"),
    Program("light.py", r"^done (\d) (2 .*)$", ["2", "1"], ["1", "2"]),
    Program("own.py", r"^(step \d+) (loss .*)$", ["--ck", "kept"], slowly=["--sleep", "0.05"]),
]


def told(program: Program, text: str) -> set[tuple[str, ...]]:
    """What was printed of the losses, as it was printed."""
    return set(re.findall(program.told, text, re.MULTILINE))


def under_torchrun(program: Program, folder: Path) -> set[tuple[str, ...]]:
    """What the program tells there: each rank by itself, since progress bars of one would cut the lines of the other."""
    folder.mkdir()
    options = ["--standalone", "--nproc-per-node", "2", "--redirects", "3", "--log-dir", str(folder / "logs")]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(PROGRAMS / program.file), *program.arguments]
    environment = {**os.environ, **program.variables}
    done = run_within(SECONDS, command, cwd=folder, env=environment)
    outputs = {name: [each.read_text() for each in (folder / "logs").rglob(name)] for name in ("stdout.log", "stderr.log")}
    assert done.returncode == 0, outputs["stderr.log"]
    assert len(outputs["stdout.log"]) == 2
    return told(program, "\n".join(outputs["stdout.log"]))


def submit(stack: Stack, program: Program, folder: Path, *, slowly: bool) -> str:
    folder.mkdir()
    file = shutil.copy(PROGRAMS / program.file, folder)
    arguments = program.arguments if program.on_two_nodes is None else program.on_two_nodes
    variables = {**program.variables, **(program.slow_variables if slowly else {})}
    spec = {
        "name": "as-found",
        "script": {"path": str(file), "args": [*arguments, *(program.slowly if slowly else ())]},
        "resources": {"nodes": 2},
        "environment": {"working_directory": str(folder), "variables": variables},
        "fault_tolerance": {"max_restarts": 1},
    }
    return stack.submit(spec)


def output(stack: Stack, job_id: str) -> str:
    return "\n".join(line["text"] for line in stack.get(f"/training/jobs/{job_id}/logs", limit=1000)["items"])


def printed(stack: Stack, program: Program, job_id: str) -> set[tuple[str, ...]]:
    return told(program, output(stack, job_id))


def kill_rank_1(stack: Stack, job_id: str) -> None:
    """As soon as rank 0 has printed or logged anything: none of these programs has saved anything by then, so that all start over."""

    def has_begun() -> bool:
        places = [RankFolder.at(each) for each in stack.data.glob(f"agents/*/jobs/{job_id}/g1/rank0")]
        return any(file.exists() and file.stat().st_size for place in places for file in (place.output, place.metrics))

    wait_until("the first words of rank 0", has_begun, SECONDS, every=0.01)
    victim = next(rank for rank in stack.job(job_id)["ranks"] if rank["rank"] == 1)
    os.kill(victim["pid"], signal.SIGKILL)


@pytest.mark.release
@pytest.mark.parametrize("program", FOUND, ids=lambda program: program.file)
def test_it_prints_what_it_prints_under_torchrun_also_after_a_kill(stack: Stack, tmp_path: Path, program: Program) -> None:
    expected = under_torchrun(program, tmp_path / "torchrun")
    assert expected

    undisturbed = submit(stack, program, tmp_path / "undisturbed", slowly=False)
    done = stack.wait_for_state(undisturbed, "completed", "failed", timeout=SECONDS)
    assert done["state"] == "completed", done["failure"]
    assert printed(stack, program, undisturbed) == expected
    assert wait_until("the loss on its page", lambda: stack.raw_curve(undisturbed), CURVE_SECONDS)

    killed = submit(stack, program, tmp_path / "killed", slowly=True)
    kill_rank_1(stack, killed)
    done = stack.wait_for_state(killed, "completed", "failed", timeout=SECONDS)
    assert (done["state"], done["generation"], done["restarts"]) == ("completed", 2, 1), done["failure"]
    assert printed(stack, program, killed) == expected
    (incident,) = stack.get(f"/training/jobs/{killed}/incidents")
    assert (incident["culprit"]["rank"], incident["culprit"]["kind"], incident["outcome"]) == (1, "signal", "recovered"), incident


def ended(stack: Stack, file: str, folder: Path, *arguments: str, ranks: int, restarts: int) -> str:
    """Run a program, whose job is to complete. Returns the id of that."""
    spec = {
        "name": "as-found",
        "script": {"path": str(PROGRAMS / file), "args": arguments},
        "resources": {"nodes": ranks},
        "environment": {"working_directory": str(folder)},
        "fault_tolerance": {"max_restarts": restarts},
    }
    job = stack.wait_for_state(stack.submit(spec), "completed", "failed", timeout=SECONDS)
    assert (job["state"], job["restarts"]) == ("completed", restarts), job["failure"]
    return str(job["id"])


@pytest.mark.release
def test_a_rank_that_raises_once_is_told_by_its_line_and_the_second_attempt_ends_well(stack: Stack, tmp_path: Path) -> None:
    """`elastic_env.py` has torch's `record`."""
    job_id = ended(stack, "elastic_env.py", tmp_path, "1", ranks=2, restarts=1)
    lines = output(stack, job_id).splitlines()
    for attempt in range(2):
        assert sum(line.startswith(f"elastic launched: True restart {attempt} max 1 ") for line in lines) == 2
    assert lines.count("sum 2.0") == 4
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    culprit = incident["culprit"]
    assert (culprit["rank"], culprit["exception"], culprit["message"]) == (1, "ValueError", "boom: learning rate must be positive"), (
        incident
    )
    assert culprit["where"] == "main in elastic_env.py:11"
    assert incident["outcome"] == "recovered"


@pytest.mark.release
def test_output_of_any_kind_comes_whole_and_in_order(stack: Stack, tmp_path: Path) -> None:
    """`noisy.py` prints progress bars, escapes, long lines, what is not text, parts of lines and of characters, and a burst."""
    job_id = ended(stack, "noisy.py", tmp_path, ranks=1, restarts=0)

    def whole() -> list[str] | None:
        lines: list[str] = []
        after = 0
        while (page := stack.get(f"/training/jobs/{job_id}/logs", limit=1000, after=after))["items"]:
            lines += [line["text"] for line in page["items"]]
            after = page["next_after"]
        return lines if lines[-1:] == ["end without newline"] else None

    lines = wait_until("its last line", whole, CURVE_SECONDS)
    assert [line for line in lines if line.startswith("fast ")] == [f"fast {number}" for number in range(3000)]
    assert {
        "漢 split char",
        "x" * 16384,
        '<script>alert(1)</script> <img src=x onerror=alert(1)> & "quotes"',
    } <= set(lines)
    assert sum(line.count("L") for line in lines if line.startswith("LLL")) >= 100_000
    parted = [line for line in lines if line.endswith(("partial...", "rest of it"))]  # by the pause within it
    assert "partial...rest of it" in "".join(parted)
    assert any("red" in line and "cleared" in line for line in lines)
