"""`paceline stacks`: what it prints, and the exit code where a rank has no stack."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, job

ID = job()["id"]
FRAME = {"function": "step", "file": "train.py", "line": 3, "own": True}


def rank(number: int, **changes: Any) -> dict[str, Any]:
    process = {"pid": 7, "command": "python", "error": "", "threads": [{"name": "MainThread", "frames": [FRAME]}]}
    return {
        "rank": number,
        "node_name": "node-a",
        "state": "running",
        "summary": "step (train.py:3)",
        "same_as": number,
        "differs": False,
        "cores": 1.0,
        "gpu_percent": None,
        "error": "",
        "taken_at": None,
        "processes": [process],
        **changes,
    }


REFUSED = {"pid": 7, "command": "python", "error": "py-spy may not look into process 7", "threads": []}
NONE = rank(3, processes=[], error="node node-a did not answer within 10 s")


def answers(coordinator: FakeCoordinator, *ranks: dict[str, Any]) -> None:
    document = {"job_id": ID, "generation": 1, "summary": "all are in step", "differs": [], "ranks": list(ranks)}
    coordinator.on("GET", f"/training/jobs/{ID}/stacks", Answer(200, document))


def test_a_stack_is_printed_as_python_prints_a_traceback(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answers(coordinator, rank(0))
    done = paceline("stacks", ID, "--rank", "0")
    assert done.returncode == 0, done.stderr
    assert 'File "train.py", line 3, in step' in done.stdout


@pytest.mark.parametrize(
    ("asked", "ranks", "told"),
    [
        (["--rank", "3"], [NONE], "no stack of rank 3: node node-a did not answer within 10 s"),
        (["--rank", "0,3"], [rank(0), NONE], "no stack of rank 3: node node-a did not answer within 10 s"),
        (["--rank", "9"], [], "no stack: the job has no rank 9"),
        (["--rank", "3"], [NONE | {"error": "", "processes": [REFUSED]}], "no stack of rank 3: py-spy may not look into process 7"),
        ([], [NONE | {"error": "", "state": "exited"}], "no stack of rank 3: it is exited"),
    ],
)
def test_a_rank_without_a_stack_is_an_error_with_its_reason(
    paceline: Paceline, coordinator: FakeCoordinator, asked: list[str], ranks: list[dict[str, Any]], told: str
) -> None:
    answers(coordinator, *ranks)
    done = paceline("stacks", ID, *asked)
    assert done.returncode == 1
    assert told in done.stderr


def test_all_ranks_may_have_one_without_a_stack_among_them(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answers(coordinator, rank(0), NONE)
    assert paceline("stacks", ID).returncode == 0
