"""An experiment as a user has it: by the command line, through deaths of the coordinator and of an agent, to its report; and the benchmark scripts,
which bring a stack of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import paceline
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.processes import command_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

EXAMPLE = "examples/experiments/ddp_vs_fsdp.yaml"
#: The example with fewer and shorter trials: one process, two replicas, two shards.
SHORT = {"repeats": "1", "job.training.steps": "8", "job.model.width": "4", "job.training.eval_every_steps": "null"}
END_SECONDS = 180.0


@pytest.fixture(scope="module")
def stack(own_stack: Stack) -> Stack:
    return own_stack


@contextmanager
def followed(stack: Stack, file: str, changes: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """`paceline experiment run` of this file, with these values `--set`, in a terminal of its own."""
    arguments = [file, *(word for name, value in changes.items() for word in ("--set", f"{name}={value}"))]
    command = [
        sys.executable,
        "-m",
        "paceline.cli.main",
        "experiment",
        "run",
        *arguments,
        "--server",
        stack.server,
        "--api-key",
        stack.api_key,
    ]
    environment = {**os.environ, "NO_COLOR": "1"}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def experiment(stack: Stack, name: str) -> dict[str, Any]:
    found = [each for each in stack.get("/experiments", q=name)["items"] if each["name"] == name]
    return dict(found[0]) if found else {}


def completed(stack: Stack, name: str) -> int:
    found = experiment(stack, name)
    return int(found["trials"]["completed"]) if found else 0


def trials(stack: Stack, name: str) -> list[dict[str, Any]]:
    return list(stack.get(f"/experiments/{experiment(stack, name)['id']}/trials", limit=200)["items"])


def test_an_experiment_outlives_its_coordinator_and_is_reported(stack: Stack, tmp_path: Path) -> None:
    with followed(stack, EXAMPLE, SHORT) as process:
        wait_until("the first trial's end", lambda: completed(stack, "ddp-vs-fsdp"), END_SECONDS)
        stack.kill_coordinator()
        stack.up(stack.port)
        table, told = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, told
    for ending in ("(world_size=1)", "strategy=ddp", "strategy=fsdp"):
        assert len([line for line in told.splitlines() if ending in line and " completed" in line]) == 1, told
    assert {"SAMPLES/S", "STEP"} <= set(table.split()), table
    found = trials(stack, "ddp-vs-fsdp")
    assert [(each["state"], each["job"]["step"]) for each in found] == [("completed", 8)] * 3
    assert len(stack.get("/training/jobs", q="ddp-vs-fsdp-")["items"]) == 3, "a trial ran twice"
    with paceline.Client(stack.server, stack.api_key) as client:
        analysis = client.analysis("ddp-vs-fsdp").analysis
        assert (analysis.completed, analysis.axes) == (3, ["parallelism.strategy", "world_size"])
        assert all(each.samples_per_second and each.peak_memory_bytes for each in analysis.configurations)
        page = client.export_experiment("ddp-vs-fsdp", tmp_path / "report.html").read_text()
        rows = client.export_experiment("ddp-vs-fsdp", tmp_path / "report.csv").read_text().splitlines()
    assert "<svg" in page
    assert not re.search(r"(src|href)=\"http|<link|url\(http", page), "not self-contained"
    assert len(rows) >= 4


def test_the_same_grid_again_runs_only_what_is_missing(stack: Stack) -> None:
    before = {each["job"]["id"] for each in trials(stack, "ddp-vs-fsdp")}
    with followed(stack, EXAMPLE, SHORT | {"repeats": "2"}) as process:
        _, told = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, told
    found = trials(stack, "ddp-vs-fsdp")
    assert len(found) == 6
    assert before < {each["job"]["id"] for each in found}


def test_an_agent_that_dies_costs_an_experiment_nothing_but_time(stack: Stack) -> None:
    with followed(stack, EXAMPLE, SHORT | {"name": "agent-dies", "job.training.steps": "40"}) as process:
        wait_until("a trial on two ranks", lambda: "ddp" in running_strategies(stack, "agent-dies"), END_SECONDS)
        agent = next(each for each in stack.processes() if "paceline.cluster.agent.main" in command_of(each))
        agent.kill()
        agent.wait(timeout=5)
        stack.up(stack.port)
        _, told = process.communicate(timeout=END_SECONDS)
    assert process.returncode == 0, told
    assert [each["state"] for each in trials(stack, "agent-dies")] == ["completed"] * 3


def running_strategies(stack: Stack, name: str) -> set[str]:
    found = trials(stack, name) if experiment(stack, name) else []
    return {each["values"].get("parallelism.strategy", "single") for each in found if each["state"] == "running" and each["job"]["step"]}


def test_a_paused_experiment_frees_its_slots_and_goes_on(stack: Stack) -> None:
    with paceline.Client(stack.server, stack.api_key) as client:
        spec = {
            "name": "paused",
            "job": {
                "model": {"kind": "mlp", "hidden": [64]},
                "data": {"kind": "digits"},
                "optimizer": {"kind": "adamw"},
                "training": {"steps": 2_000, "global_batch_size": 64, "eval_every_steps": None},
                "checkpoint": {"every_steps": None},
            },
            "grid": {"optimizer.lr": [0.001, 0.01]},
            "at_once": 1,
        }
        client.submit_experiment(spec)
        wait_until("its first trial", lambda: any(each.state == "running" for each in client.trials("paused")), 60)
        client.pause_experiment("paused")
        wait_until("free slots", lambda: stack.free_slots() == 2, 60)
        assert client.experiment("paused").state == "paused"
        client.resume_experiment("paused")
        ended = client.wait_for_experiment("paused", timeout=END_SECONDS)
    assert (ended.state, ended.trials and ended.trials.completed) == ("completed", 2)


@pytest.mark.parametrize(
    ("script", "arguments", "rows"),
    [
        ("run_benchmark.py", ("--gpus", "1", "2", "4096", "--batch-sizes", "8"), ["4096 ranks: not run"]),
        ("run_distributed_benchmarks.py", (), []),
    ],
)
def test_a_benchmark_script_brings_its_own_stack_and_leaves_a_report(
    script: str, arguments: tuple[str, ...], rows: list[str], tmp_path: Path
) -> None:
    command = [
        sys.executable,
        str(ROOT / "scripts" / script),
        *arguments,
        "--steps",
        "8",
        "--repeats",
        "1",
        "--output",
        str(tmp_path / "out"),
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")} | {"HOME": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=END_SECONDS)
    assert done.returncode == 0, done.stderr
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"table.txt", "report.html", "report.md", "results.csv", "results.json"}
    assert (tmp_path / "out" / "table.txt").read_text() == done.stdout
    assert all(row in done.stdout for row in rows)
    assert json.loads((tmp_path / "out" / "results.json").read_text())
    left = [each for each in psutil.process_iter(["environ"]) if str(tmp_path) in str(each.info["environ"]) and each.pid != os.getpid()]
    assert not left
