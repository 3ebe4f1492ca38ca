"""The command as a whole: help, lean imports, exit codes of errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

from cli.exits import MEANINGS
from tests.cli.conftest import ROOT, Paceline
from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, problem

JOB = "01JD0000000000000000000001"


def loaded_after(statement: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys; print(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def test_command_line_imports_neither_torch_nor_the_server() -> None:
    everything = (
        "import cli.main, cli.client, cli.follow, cli.live, cli.documents, cli.local.stack, cli.local.watchdog, training.data.tokenize"
    )
    assert not loaded_after(everything) & {"torch", "fastapi", "sqlalchemy", "api", "db", "cluster"}


def test_help_does_without_what_is_slow_to_import() -> None:
    assert not loaded_after("import cli.main") & {"httpx", "websockets", "pydantic", "yaml", "psutil", "numpy"}


def test_help_documents_every_exit_code(stranger: Paceline) -> None:
    done = stranger("--help", COLUMNS="200")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert all(f"{code.value} {meaning}" in text for code, meaning in MEANINGS.items())


def test_unknown_option_is_a_usage_error(stranger: Paceline) -> None:
    assert stranger("jobs", "--nonsense").returncode == 2


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (401, "not_signed_in", 4),
        (403, "not_allowed", 4),
        (404, "job_not_found", 5),
        (409, "job_finished", 6),
        (422, "invalid", 2),
        (500, "bug", 1),
    ],
)
def test_problem_decides_the_exit_code(paceline: Paceline, coordinator: FakeCoordinator, status: int, code: str, exit_code: int) -> None:
    coordinator.on("GET", f"/training/jobs/{JOB}", problem(status, code, "what went wrong"))
    done = paceline("show", JOB)
    assert done.returncode == exit_code
    assert done.stdout == ""
    assert "what went wrong" in done.stderr
    assert code in done.stderr


def test_full_disk_behind_stdout_is_one_line_and_exit_1(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", Answer(200, {"items": [], "next_cursor": None}))
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            paceline.command("jobs"), cwd=paceline.folder, env=paceline.full({}), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, "error: stdout cannot be written: No space left on device\n")


def test_field_errors_are_printed_with_their_hints(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    fields = [{"pointer": "/resources/nodes", "code": "too_big", "message": "9999 is over 4096", "hint": "use 4096"}]
    coordinator.on("POST", "/training/jobs", problem(422, "invalid_spec", "1 field is wrong", errors=fields))
    done = paceline("submit", "-", stdin="name: x")
    assert done.returncode == 2
    assert "/resources/nodes: 9999 is over 4096 -> use 4096" in done.stderr


def test_single_field_error_is_printed_once(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    fields = [{"pointer": "/precision", "code": "inconsistent_spec", "message": "fp16 does not fit; use bf16", "hint": "use bf16"}]
    coordinator.on("POST", "/training/jobs", problem(422, "invalid_spec", "/precision: fp16 does not fit; use bf16", errors=fields))
    assert paceline("submit", "-", stdin="name: x").stderr.count("use bf16") == 1


def test_nobody_there_exits_7_and_says_where_the_address_came_from(stranger: Paceline) -> None:
    done = stranger("jobs", "--server", "http://127.0.0.1:9")
    assert done.returncode == 7
    assert "from flag" in done.stderr
    assert "paceline up" in done.stderr


def test_proxy_page_is_shown_as_it_came(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.handlers["GET", f"{API}/training/jobs"] = lambda request: Answer(502, "<h1>bad gateway</h1>")
    done = paceline("jobs")
    assert done.returncode == 1
    assert "bad gateway" in done.stderr
