"""Scripts that hang, with real ranks and the real py-spy: told, withdrawn, ended where their spec says so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

CODE = Path(__file__).parent / "user_code"
SOURCE = (CODE / "hanging.py").read_text().splitlines()
QUIET_SECONDS = 5
TOLD, WITHDRAWN = "job.hang_suspected", "job.hang_withdrawn"


@pytest.fixture(scope="module")
def stack(empty_stack: Stack) -> Iterator[Stack]:
    """Two agents with little patience, started as by hand."""
    empty_stack.up(free_port(), agents=0)
    agents = [_worker(empty_stack, name) for name in ("a", "b")]
    wait_until("both nodes are ready", lambda: len(empty_stack.get("/cluster/nodes", status="ready")["items"]) == 2, 60)
    yield empty_stack
    for agent in agents:
        agent.terminate()
    for agent in agents:
        agent.wait(30)


def _worker(stack: Stack, name: str) -> subprocess.Popen[bytes]:
    invitation = stack.client.post("/cluster/nodes", json={})
    assert invitation.status_code == 201, invitation.text
    command = [sys.executable, "-m", "paceline.cli.main", "worker", "--server", stack.server, "--token", invitation.json()["token"]]
    options = [
        "--name",
        name,
        "--slots",
        "1",
        "--data",
        str(stack.data / name),
        "--checkpoints",
        str(stack.data / "checkpoints"),
        "--quiet-seconds",
        str(QUIET_SECONDS),
    ]
    with open(stack.data / f"{name}.log", "wb") as log:
        return subprocess.Popen([*command, *options], cwd=ROOT, env=dict(os.environ), stdout=log, stderr=log)


def submit(stack: Stack, case: str, **fault_tolerance: Any) -> str:
    return stack.submit(
        {
            "name": case,
            "script": {"path": "hanging.py", "args": [case], "grace_seconds": 3},
            "resources": {"nodes": 2},
            "environment": {"working_directory": str(CODE)},
            "fault_tolerance": {"max_restarts": 0} | fault_tolerance,
        }
    )


def line(text: str) -> int:
    return next(number for number, source in enumerate(SOURCE, start=1) if source.strip() == text)


def told(stack: Stack, job_id: str) -> list[str]:
    return [
        event["type"] for event in stack.get(f"/training/jobs/{job_id}/events", limit=200)["items"] if event["type"] in (TOLD, WITHDRAWN)
    ]


def end(stack: Stack, job_id: str) -> None:
    stack.change("DELETE", job_id)
    stack.wait_for_state(job_id, "cancelled")


def test_a_loop_is_told_with_the_rank_that_differs_and_left_as_it_is(stack: Stack) -> None:
    job_id = submit(stack, "loop")
    hang = wait_until("it is told to hang", lambda: stack.job(job_id)["hang"], 90)
    assert hang["differs"] == [1], hang
    assert re.search(rf"rank 1 is at hanging\.py:({line('pass')}|{line('while True:')}) while rank 0 waits in all_reduce", hang["message"])
    done = stack.paceline("show", job_id, "--server", stack.server, "--api-key", stack.api_key)
    assert "hangs?      no output and no step of any rank for" in done.stdout, done.stdout
    done = stack.paceline("stacks", job_id, "--server", stack.server, "--api-key", stack.api_key)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^1 +\S+ +running +\d+% +- +is at hanging\.py:\d+ <- differs$", done.stdout, re.MULTILINE), done.stdout
    assert f'File "{CODE / "hanging.py"}", line {line("dist.all_reduce(torch.ones(4))")}, in step' in done.stdout
    assert stack.job(job_id)["state"] == "running"
    end(stack, job_id)
    assert stack.job(job_id)["hang"] is None


def test_a_rank_that_reads_what_never_comes_ends_the_job_by_its_users_word(stack: Stack) -> None:
    job = stack.wait_for_state(submit(stack, "input", hang_seconds=4), "failed", timeout=90)
    failure = job["failure"]
    assert (job["end_reason"], failure["kind"], failure["rank"]) == ("hang", "hang", 1), failure
    assert failure["where"] == f"read_what_never_comes in hanging.py:{line('os.read(os.pipe()[0], 1)')}"
    assert "while rank 0 waits in all_reduce" in failure["message"]
    assert "in read_what_never_comes" in failure["traceback"]


def test_a_job_that_hung_is_started_again(stack: Stack) -> None:
    job = stack.wait_for_state(submit(stack, "once", hang_seconds=4, max_restarts=1), "completed", "failed", timeout=120)
    assert (job["state"], job["restarts"], job["generation"]) == ("completed", 1, 2), job["failure"]
    (incident,) = stack.get(f"/training/jobs/{job['id']}/incidents")
    assert (incident["cause"], incident["culprit"]["rank"], incident["action"]) == ("hang", 1, "restarted")


def test_mismatched_calls_are_told_with_both_lines(stack: Stack) -> None:
    job = stack.wait_for_state(submit(stack, "order", hang_seconds=4), "failed", timeout=90)
    assert job["end_reason"] == "hang"
    number = line("dist.broadcast(torch.ones(4), 0) if rank == 1 else dist.all_reduce(torch.ones(4))")
    calls = f"mismatched calls: rank 0 waits in all_reduce (hanging.py:{number}), rank 1 waits in broadcast (hanging.py:{number})"
    assert calls in job["failure"]["message"]


def test_a_script_that_sleeps_and_goes_on_is_told_and_withdrawn_and_completes(stack: Stack) -> None:
    job_id = submit(stack, "sleep")
    wait_until("it is told to hang", lambda: stack.job(job_id)["hang"], 90)
    wait_until("that is withdrawn", lambda: stack.job(job_id)["hang"] is None, 90)
    assert told(stack, job_id) == [TOLD, WITHDRAWN]
    job = stack.wait_for_state(job_id, "completed", "failed", timeout=90)
    assert (job["state"], job["restarts"]) == ("completed", 0)


def test_our_own_trainers_ranks_have_stacks_too(stack: Stack) -> None:
    spec = {"name": "own", "model": {"kind": "mlp"}, "data": {"kind": "digits"}, "resources": {"nodes": 2}, "training": {"steps": 200_000}}
    job_id = stack.submit(spec)
    stack.wait_for_step(job_id, 1)
    found = stack.get(f"/training/jobs/{job_id}/stacks")
    assert [rank["error"] for rank in found["ranks"]] == ["", ""], found
    files = {frame["file"] for rank in found["ranks"] for frame in rank["processes"][0]["threads"][0]["frames"]}
    assert any(file.startswith("paceline/training/") for file in files), files
    assert told(stack, job_id) == []
    end(stack, job_id)
