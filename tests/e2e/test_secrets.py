"""Twenty canaries on a real stack: given to a job that prints them, raises them, logs them as names and writes them; searched for, and found nowhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

LEAK = """
import base64, json, os, pathlib, sys, time, urllib.parse
import paceline

names = [f"CANARY_{number}" for number in range(20)]
values = [os.environ[name] for name in names]
paceline.init()
for value in values:
    print("plain", value)
    print(json.dumps({"value": value}), repr(value), urllib.parse.quote(value, safe=""))
    print("basic", base64.b64encode(b"user:" + value.encode()).decode(), value.encode().hex())
    paceline.log({f"metrics/{value}": 1.0, "loss": 2.0}, step=1)
sys.stdout.write(f"begun {values[0][:12]}")
sys.stdout.flush()
time.sleep(2)
print(f"{values[0][12:]} ended")
pathlib.Path(os.environ["PACELINE_ARTIFACTS"], "clean.txt").write_text("nothing in here")
for value in values:
    pathlib.Path(os.environ["PACELINE_ARTIFACTS"], f"of {value}.txt").write_text("in its name")
    pathlib.Path(os.environ["PACELINE_ARTIFACTS"], f"{names[values.index(value)]}.txt").write_text(f"in here: {value}")
time.sleep(3)
raise RuntimeError("refused: " + " ".join(values))
"""


def found_in(text: bytes, canaries: dict[str, str]) -> list[str]:
    """The canaries of which a distinctive half is there, whatever is around it."""
    return [name for name, value in canaries.items() if value[7:].encode() in text]


def set_secret(stack: Stack, name: str, value: str) -> None:
    command = [sys.executable, "-m", "paceline.cli.main", "secret", "set", name, "--server", stack.server, "--api-key", stack.api_key]
    done = subprocess.run(command, input=value, text=True, capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_a_rank_has_its_secret_and_its_log_has_not(stack: Stack, tmp_path: Path) -> None:
    set_secret(stack, "TOKEN", "a-token-of-the-test\n")
    (tmp_path / "look.py").write_text("import os\nprint(len(os.environ['TOKEN']), os.environ['TOKEN'])\n")
    environment = {"working_directory": str(tmp_path), "secrets": ["TOKEN"]}
    job = stack.submit({"name": "look", "script": {"path": "look.py"}, "resources": {"nodes": 1}, "environment": environment})
    stack.wait_for_state(job, "completed")
    assert [line["text"] for line in stack.get(f"/training/jobs/{job}/logs")["items"]] == ["19 ***"]


@pytest.mark.release
def test_twenty_canaries_are_found_nowhere(stack: Stack, tmp_path: Path) -> None:
    canaries = {f"CANARY_{number}": f"canary-{number:02}-{os.urandom(9).hex()}" for number in range(20)}
    for name, value in canaries.items():
        set_secret(stack, name, value)
    (tmp_path / "leak.py").write_text(LEAK)
    environment = {"working_directory": str(tmp_path), "secrets": list(canaries)}
    spec = {
        "name": "leak",
        "script": {"path": "leak.py"},
        "resources": {"nodes": 1},
        "fault_tolerance": {"max_restarts": 0},
        "environment": environment,
    }
    job = stack.submit(spec)
    ended = stack.wait_for_state(job, "failed", timeout=120)
    logs = json.dumps(stack.get(f"/training/jobs/{job}/logs", limit=1000))
    assert logs.count("plain ***") == 20, logs
    assert "refused: ***" in json.dumps(ended)
    assert logs.count("is not kept with the job") >= 20
    paths = (f"/training/jobs/{job}", f"/metrics/jobs/{job}", f"/training/jobs/{job}/files", "/events", "/audit", "/secrets")
    answers = [logs.encode(), *(json.dumps(stack.get(path)).encode() for path in paths)]
    assert found_in(b"".join(answers), canaries) == []
    assert stack.paceline("backup", str(tmp_path / "backup"), "--data", str(stack.data)).returncode == 0
    assert found_in(b"".join(path.read_bytes() for path in (tmp_path / "backup").rglob("*") if path.is_file()), canaries) == []

    def left() -> list[str]:
        files = [path for path in stack.data.rglob("*") if path.is_file()]
        return [str(path) for path in files if found_in(path.read_bytes(), canaries) or found_in(path.name.encode(), canaries)]

    wait_until("nothing of them is left on the node", lambda: left() == [] or None, timeout=100, every=1.0)
