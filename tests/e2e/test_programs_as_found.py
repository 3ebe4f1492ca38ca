"""Programs as they were found on a user's disk, in their own style, but for the folder that they read and write: what they print at the end is what they
print under torchrun, the last loss that they print is the last point of their curve, and they go on after the kill of a rank."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from paceline.training.rank_folder import RankFolder
from tests.e2e.lost_steps import assert_unknown
from tests.e2e.stack import Stack, wait_until
from tests.e2e.torchrun import is_as_printed, run_within
from tests.event_files import read_scalars

PROGRAMS = Path(__file__).parent / "user_code" / "as_found"
SECONDS = 240
CURVE_SECONDS = 20.0
#: These say each step by its number, or what they have loaded, so that what they did twice is known.
TELL_EACH_STEP = ("fsdp2.py", "own.py")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@dataclass(frozen=True)
class Program:
    """A file, the pattern of what it prints of its losses, its arguments under torchrun and in a job of two nodes with a slot each, and its variables.

    `last_loss`: the pattern of a loss that rank 0 prints, the last of which is the last point of the curve, or the point of `step` where it has one.
    `event_files`: the folder of its own curves, where it prints no such loss. `beside`: further files that it reads. `slowly`, `slow_variables`: further
    ones of the run in which a rank is killed.
    """

    file: str
    told: str
    arguments: Sequence[str] = ()
    on_two_nodes: Sequence[str] | None = None
    last_loss: str = ""
    event_files: str = ""
    beside: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    slowly: Sequence[str] = ()
    slow_variables: Mapping[str, str] = field(default_factory=dict)


NUMBER = r"(?P<loss>\d[\d.e+-]*)"
OF_TRAINER = r"^done rank (\d) world (2 \d+) .*'train_loss': '?([\d.]+)"
HF_CB = Program("hf_cb.py", OF_TRAINER, last_loss=rf"\{{'loss': '?{NUMBER}", beside=["hf.py"])
FOUND = [
    Program(
        "ddp.py",
        r"^\[rank \d\] (Epoch \d+) .*(loss [\d.]+)$",
        last_loss=rf"^\[rank 0\] Epoch \d+ .*loss {NUMBER}$",
        slowly=["--sleep", "0.02"],
    ),
    Program(
        "acc.py",
        r"^(epoch \d+) (steps \d+ loss .*)$",
        ["--tb"],
        last_loss=rf"^epoch \d+ steps \d+ loss of ranks \[{NUMBER},",
        variables={"ACCELERATE_USE_CPU": "1"},
    ),
    Program("fabric.py", r"^(epoch \d+) (loss .*)$", ["2", "1"], ["1", "2"], last_loss=rf"^epoch \d+ loss {NUMBER}$"),
    Program("fsdp2.py", r"^rank (\d) (done .*)$", last_loss=rf"^rank 0 done \d+ {NUMBER}$", slow_variables={"SLEEP": "0.05"}),
    Program("hf.py", OF_TRAINER, last_loss=HF_CB.last_loss),
    HF_CB,
    Program("light.py", r"^done (\d) (2 .*)$", ["2", "1"], ["1", "2"], event_files="out/light"),
    Program(
        "own.py",
        r"^(step \d+) (loss .*)$",
        ["--ck", "kept"],
        last_loss=rf"^step (?P<step>\d+) loss {NUMBER}",
        slowly=["--sleep", "0.05"],
    ),
]


def told(program: Program, text: str) -> set[tuple[str, ...]]:
    """What was printed of the losses, as it was printed."""
    return set(re.findall(program.told, text, re.MULTILINE))


def last_loss(program: Program, text: str, folder: Path) -> tuple[int | None, str]:
    """The last loss that the program has printed, as it was printed, with its step where that stands beside it; else the one in its event files."""
    if program.event_files:
        (file,) = (folder / program.event_files).rglob("events.out.tfevents.*")
        return None, repr(read_scalars(file)["train_loss"][-1].value)
    found = [*re.finditer(program.last_loss, text, re.MULTILINE)][-1].groupdict()
    return (int(found["step"]) if "step" in found else None), found["loss"]


def under_torchrun(program: Program, folder: Path) -> str:
    """What the program prints there: each rank by itself, since progress bars of one would cut the lines of the other."""
    folder.mkdir()
    for name in program.beside:
        shutil.copy(PROGRAMS / name, folder)
    options = ["--standalone", "--nproc-per-node", "2", "--redirects", "3", "--log-dir", str(folder / "logs")]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(PROGRAMS / program.file), *program.arguments]
    environment = {**os.environ, **program.variables}
    done = run_within(SECONDS, command, cwd=folder, env=environment)
    outputs = {name: [each.read_text() for each in (folder / "logs").rglob(name)] for name in ("stdout.log", "stderr.log")}
    assert done.returncode == 0, outputs["stderr.log"]
    assert len(outputs["stdout.log"]) == 2
    return "\n".join(outputs["stdout.log"])


def submit(stack: Stack, program: Program, folder: Path, *, slowly: bool) -> str:
    folder.mkdir()
    file, *_ = [shutil.copy(PROGRAMS / name, folder) for name in (program.file, *program.beside)]
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


def kill_rank_1_after(stack: Stack, job_id: str, what: str, has_come: Callable[[], bool]) -> None:
    wait_until(what, has_come, SECONDS, every=0.01)
    victim = next(rank for rank in stack.job(job_id)["ranks"] if rank["rank"] == 1)
    os.kill(victim["pid"], signal.SIGKILL)


def kill_rank_1(stack: Stack, job_id: str) -> None:
    """As soon as rank 0 has printed or logged anything: none of these programs has saved anything by then, so that all start over."""

    def has_begun() -> bool:
        places = [RankFolder.at(each) for each in stack.data.glob(f"agents/*/jobs/{job_id}/g1/rank0")]
        return any(file.exists() and file.stat().st_size for place in places for file in (place.output, place.metrics))

    kill_rank_1_after(stack, job_id, "the first words of rank 0", has_begun)


def its_curve_ends_with(stack: Stack, job_id: str, step: int | None, loss: str) -> None:
    """Look for the last loss at the end of the curve, or at its step, on the page of a job: rounded as it was printed it has the same digits."""

    def is_there() -> bool:
        points = dict(stack.raw_curve(job_id))
        value = points.get(max(points, default=0) if step is None else step)
        return value is not None and is_as_printed(value, loss)

    wait_until(f"the loss {loss} at the end of its curve", is_there, CURVE_SECONDS)


def recovered(stack: Stack, job_id: str) -> dict[str, Any]:
    """The only incident of a job whose rank 1 was killed once, and which has completed."""
    done = stack.wait_for_state(job_id, "completed", "failed", timeout=SECONDS)
    assert (done["state"], done["generation"], done["restarts"]) == ("completed", 2, 1), done["failure"]
    (incident,) = stack.get(f"/training/jobs/{job_id}/incidents")
    assert (incident["culprit"]["rank"], incident["culprit"]["kind"], incident["outcome"]) == (1, "signal", "recovered"), incident
    return dict(incident)


@pytest.mark.release
@pytest.mark.parametrize("program", FOUND, ids=lambda program: program.file)
def test_it_prints_what_it_prints_under_torchrun_also_after_a_kill(stack: Stack, tmp_path: Path, program: Program) -> None:
    text = under_torchrun(program, tmp_path / "torchrun")
    expected, loss = told(program, text), last_loss(program, text, tmp_path / "torchrun")
    assert expected

    undisturbed = submit(stack, program, tmp_path / "undisturbed", slowly=False)
    done = stack.wait_for_state(undisturbed, "completed", "failed", timeout=SECONDS)
    assert done["state"] == "completed", done["failure"]
    assert printed(stack, program, undisturbed) == expected
    its_curve_ends_with(stack, undisturbed, *loss)

    killed = submit(stack, program, tmp_path / "killed", slowly=True)
    kill_rank_1(stack, killed)
    incident = recovered(stack, killed)
    assert printed(stack, program, killed) == expected
    its_curve_ends_with(stack, killed, *loss)
    if program.file not in TELL_EACH_STEP:
        assert_unknown(stack, killed, incident)


@pytest.mark.release
def test_steps_that_a_trainer_repeats_from_its_checkpoint_are_unknown_where_it_logs_each_fifth(stack: Stack, tmp_path: Path) -> None:
    """It was told as "from step 0; no step was lost"."""
    job_id = submit(stack, HF_CB, tmp_path / "killed", slowly=True)
    saved = tmp_path / "killed" / "out" / "hf" / "checkpoint-20"
    kill_rank_1_after(
        stack, job_id, "its checkpoint, and a step behind it", lambda: saved.exists() and stack.job(job_id)["progress"]["step"] > 20
    )
    incident = recovered(stack, job_id)
    assert incident["step"] > 20
    assert_unknown(stack, job_id, incident)
    assert {step for step, _ in stack.raw_curve(job_id)} == set(range(5, 126, 5))
    its_curve_ends_with(stack, job_id, *last_loss(HF_CB, output(stack, job_id), tmp_path))


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
