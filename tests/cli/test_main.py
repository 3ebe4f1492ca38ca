"""The command as a whole: help, lean imports, exit codes of errors."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from paceline.cli.exits import MEANINGS
from paceline.version import version
from tests.cli.conftest import ROOT, TIMEOUT_S, Paceline
from tests.cli.fake_coordinator import API, Answer, FakeCoordinator, problem

JOB = "01JD0000000000000000000001"


def modules_after(statement: str) -> set[str]:
    """Modules, those of `paceline` by their rooms, that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys; print(' '.join(name.removeprefix('paceline.') for name in sys.modules))"
    return set(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split())


def loaded_after(statement: str) -> set[str]:
    """Top-level packages, and rooms of `paceline`, that a fresh interpreter has loaded after a statement."""
    return {name.partition(".")[0] for name in modules_after(statement)}


def test_command_line_imports_neither_torch_nor_the_server() -> None:
    parts = ("app", "client", "follow", "live", "documents", "local.stack", "local.watchdog")
    modules = modules_after(f"import {', '.join(f'paceline.cli.{part}' for part in parts)}, paceline.training.data.tokenize")
    loaded = {name.partition(".")[0] for name in modules}
    assert {"cli", "training"} <= loaded
    assert not loaded & {"torch", "fastapi", "sqlalchemy", "api", "db"}
    assert {name for name in modules if name.startswith("cluster")} <= {"cluster", "cluster.states"}


def test_help_does_without_what_is_slow_to_import() -> None:
    assert not loaded_after("import paceline.cli.app") & {"httpx", "websockets", "pydantic", "yaml", "psutil", "numpy"}


def test_help_documents_every_exit_code(stranger: Paceline) -> None:
    done = stranger("--help", COLUMNS="200")
    assert done.returncode == 0
    text = " ".join(done.stdout.split())
    assert all(f"{code.value} {meaning}" in text for code, meaning in MEANINGS.items())


def test_ctrl_c_during_the_imports_ends_with_130_and_says_nothing(stranger: Paceline) -> None:
    """It was a traceback of the import; a module that catches everything while it is imported would hide it."""
    shadow = stranger.folder / "typer.py"
    shadow.write_text("import signal\ntry:\n    signal.raise_signal(signal.SIGINT)\nexcept BaseException:\n    pass\n")
    done = subprocess.run(
        stranger.command("jobs"),
        env=stranger.full({"PYTHONPATH": f"{stranger.folder}:{ROOT}"}),
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


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


def test_single_field_is_printed_once_with_its_line_and_the_way_out_that_the_detail_lacks(
    paceline: Paceline, coordinator: FakeCoordinator
) -> None:
    message = "Invalid value 'a b': use lower-case letters"
    fields = [{"pointer": "/name", "code": "string_pattern_mismatch", "message": message, "hint": "for example gpt-2"}]
    coordinator.on("POST", "/training/jobs", problem(422, "invalid_spec", f"/name: {message}", errors=fields))
    told = paceline("submit", "-", stdin="name: x").stderr
    assert told == f"error: /name (line 1): {message} (422, invalid_spec)\nhint: for example gpt-2\n"


def test_of_several_refused_fields_none_is_told_twice(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """The first stood in the headline and in the list."""
    fields = [{"pointer": "/nme", "message": "`nme` is not a field"}, {"pointer": "/precision", "message": "fp9 does not fit"}]
    coordinator.on("POST", "/training/jobs", problem(422, "invalid_spec", "/nme: `nme` is not a field (and 1 more)", errors=fields))
    told = paceline("submit", "-", stdin="name: x").stderr
    assert told == "error: refused for these reasons (422, invalid_spec)\n  /nme: `nme` is not a field\n  /precision: fp9 does not fit\n"


def test_an_absent_coordinator_exits_7_and_says_where_the_address_came_from(stranger: Paceline) -> None:
    done = stranger("jobs", "--server", "http://127.0.0.1:9")
    assert done.returncode == 7
    assert "from flag" in done.stderr
    assert "paceline up" in done.stderr
    assert "paceline login --data FOLDER/.paceline" in done.stderr


def test_who_is_not_signed_in_is_told_where_a_key_comes_from(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", "/training/jobs", problem(401, "not_signed_in", "no valid key"))
    told = paceline("jobs").stderr
    assert "paceline keys create NAME" in told
    assert "paceline login --data FOLDER" in told


def test_with_json_an_error_is_a_document_on_stdout_and_words_on_stderr(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    """stdout was empty, so that a program had to read the words."""
    fields = [{"pointer": "/precision", "code": "inconsistent_spec", "message": "fp9 does not fit", "hint": "use bf16"}]
    coordinator.on("POST", "/training/jobs", problem(422, "invalid_spec", "/precision: fp9 does not fit", errors=fields))
    done = paceline("submit", "-", "--json", stdin="name: x")
    assert json.loads(done.stdout) == {
        "error": {
            "code": "invalid_spec",
            "message": "/precision: fp9 does not fit",
            "exit_code": 2,
            "status": 422,
            "errors": [fields[0] | {"line": None}],
        }
    }
    assert done.stderr == "error: /precision: fp9 does not fit (422, invalid_spec)\nhint: use bf16\n"


def test_errors_before_a_command_begins_are_documents_too(stranger: Paceline) -> None:
    wrong = json.loads(stranger("jobs", "--json", "--nonsense").stdout)["error"]
    assert (wrong["code"], wrong["exit_code"]) == ("usage", 2)
    away = json.loads(stranger("jobs", "-o", "jsonl", "--server", "http://127.0.0.1:9").stdout)["error"]
    assert (away["code"], away["exit_code"]) == ("unreachable", 7)


def test_a_slip_in_a_command_is_one_line_with_the_right_word(stranger: Paceline) -> None:
    done = stranger("job")
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, "error: No such command 'job'. Did you mean 'jobs'?")


def test_version_is_printed(stranger: Paceline) -> None:
    assert stranger("--version").stdout == f"paceline {version()}\n"


def test_proxy_page_is_shown_as_it_came(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.handlers["GET", f"{API}/training/jobs"] = lambda request: Answer(502, "<h1>bad gateway</h1>")
    done = paceline("jobs")
    assert done.returncode == 1
    assert "bad gateway" in done.stderr
