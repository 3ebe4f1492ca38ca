"""TAB after a command that takes a JOB, as bash asks for it."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator, Request, job, problem

INSTALLED = "import sys; sys.argv = ['paceline']; from paceline.cli.main import main; main()"
NEWER, OLDER, OTHER = "01JD0000000000000000000003", "01JD0000000000000000000002", "01JD0000000000000000000001"
PAGE = {"items": [job(id=NEWER, name="gpt"), job(id=OLDER, name="gpt"), job(id=OTHER, name="digits")], "next_cursor": None}


def offered(paceline: Paceline, line: str) -> list[str]:
    request = {"_PACELINE_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    environment = paceline.full(request)
    done = subprocess.run(
        [sys.executable, "-c", INSTALLED], cwd=paceline.folder, env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("paceline show ", ["gpt", "digits"]),
        ("paceline logs g", ["gpt"]),
        ("paceline cancel 01JD", [NEWER, OLDER, OTHER]),
        ("paceline pause nothing", []),
    ],
)
def test_tab_offers_names_then_ids(paceline: Paceline, coordinator: FakeCoordinator, line: str, expected: list[str]) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, PAGE))
    assert offered(paceline, line) == expected


def test_tab_offers_nodes_keys_and_states(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """It offered names of jobs and nothing else."""
    coordinator.on("GET", "/cluster/nodes", Answer(200, {"items": [{"id": "N1", "name": "local-1"}], "next_cursor": None}))
    keys = [{"id": "K1", "name": "ci", "revoked_at": None}, {"id": "K2", "name": "old", "revoked_at": "2026-11-20T12:00:00Z"}]
    coordinator.on("GET", "/keys", Answer(200, {"items": keys, "next_cursor": None}))
    assert offered(paceline, "paceline nodes drain ") == ["local-1"]
    assert offered(paceline, "paceline keys revoke ") == ["K1"]
    assert offered(paceline, "paceline wait gpt --for paus") == ["paused"]


def test_tab_is_silent_where_the_coordinator_does_not_answer_or_refuses(
    stranger: Paceline, paceline: Paceline, coordinator: FakeCoordinator
) -> None:
    coordinator.on("GET", "/training/jobs", problem(401, "not_authenticated", "sign in"))
    assert offered(paceline, "paceline show ") == []
    assert offered(stranger, "paceline show --server http://127.0.0.1:9 ") == []


def test_tab_does_not_wait_for_a_coordinator_that_hangs(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    over = threading.Event()

    def hang(_: Request) -> Answer:
        over.wait(60)
        return Answer(200, PAGE)

    coordinator.handlers["GET", "/api/v1/training/jobs"] = hang
    assert offered(paceline, "paceline show ") == []
    over.set()
