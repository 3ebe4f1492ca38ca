"""`paceline secret`: values from stdin alone, names listed, deleted, and a new key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Paceline
from tests.cli.fake_coordinator import Answer, FakeCoordinator

ROOT = "/secrets"
AT = "2026-11-20T12:00:00Z"
SECRET: dict[str, Any] = {
    "project": "vision",
    "name": "HF_TOKEN",
    "created_by": "ada",
    "created_at": AT,
    "updated_by": "vera",
    "updated_at": AT,
}


def test_a_value_comes_from_stdin_without_its_newline(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("PUT", f"{ROOT}/vision/HF_TOKEN", Answer(200, SECRET))
    done = paceline("secret", "set", "HF_TOKEN", "--project", "vision", stdin="hf_0123456789\n")
    assert done.stdout == "HF_TOKEN is set for project vision\n"
    assert coordinator.requests[-1].body == {"value": "hf_0123456789"}
    assert "hf_" not in done.stdout + done.stderr
    assert "environment: {secrets: [HF_TOKEN]}" in done.stderr


@pytest.mark.parametrize(
    ("name", "stdin", "words"),
    [
        ("HF_TOKEN=hf_0123456789", "", "is no argument"),
        ("HF_TOKEN", "", "there is no value on stdin"),
        ("HF_TOKEN", "\n", "there is no value on stdin"),
    ],
)
def test_what_is_no_value_from_stdin_is_refused(paceline: Paceline, name: str, stdin: str, words: str) -> None:
    done = paceline("secret", "set", name, stdin=stdin)
    assert done.returncode == 2
    assert words in done.stderr
    assert "hf_0" not in done.stderr


def test_secrets_are_listed_by_name(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("GET", ROOT, Answer(200, [SECRET]))
    header, line = paceline("secret", "list", "--project", "vision").stdout.splitlines()
    assert header.split() == ["PROJECT", "NAME", "SET", "BY", "SET"]
    assert line.split()[:3] == ["vision", "HF_TOKEN", "vera"]
    coordinator.on("GET", ROOT, Answer(200, []))
    assert paceline("secret", "list").stdout == "there are no secrets: paceline secret set NAME\n"


def test_a_secret_is_deleted(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    coordinator.on("DELETE", f"{ROOT}/default/HF_TOKEN", Answer(204, None))
    assert paceline("secret", "delete", "HF_TOKEN", "--yes").stdout == "HF_TOKEN of project default is deleted\n"


def test_a_new_key_says_what_it_has_sealed(paceline: Paceline, coordinator: FakeCoordinator) -> None:
    answer = {"key_id": "0123456789ab", "secrets": 3, "channels": 1, "dropped": ["vision/LOST"], "deleted_keys": 1}
    coordinator.on("POST", f"{ROOT}/rotate", Answer(200, answer))
    assert paceline("secret", "rotate").stdout.splitlines() == [
        "key          0123456789ab",
        "sealed anew  3 values, 1 channel",
        "older keys   1 deleted",
        "given up     vision/LOST",
    ]
    refused = paceline("secret", "rotate", "--drop-unreadable")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
