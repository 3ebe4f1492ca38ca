"""An interpreter that a job names: looked at on the node, and refused with both versions where its ranks cannot have it."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.cluster.agent.environments import own_python
from paceline.cluster.agent.environments.node_python import this_python
from paceline.cluster.agent.environments.own_python import (
    InterpreterFacts,
    PythonNotAnsweringError,
    PythonRefusedError,
    key_of_python,
    look_at,
    spawner_command,
    variables_of,
)

NODE = this_python()


def python_that_says(folder: Path, **facts: str | None) -> str:
    said = {"python": NODE.version, "torch": NODE.torch, "prefix": str(folder), "packages": str(folder)} | facts
    path = folder / "python"
    path.write_text(f"#!/bin/sh\necho '{json.dumps(said)}'\n")
    path.chmod(0o755)
    return str(path)


async def test_this_interpreter_serves_the_trainer() -> None:
    found = await look_at(sys.executable, NODE, dict(os.environ), None, is_script=False)
    assert (found.python, found.torch) == (NODE.version, NODE.torch)


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"python": "3.8.1"}, "is Python 3.8.1, and this node's Paceline runs on"),
        ({"torch": None}, "has no torch"),
        ({"torch": "1.0"}, "has torch 1.0, and this node trains with"),
    ],
)
async def test_the_trainer_needs_the_nodes_python_and_torch_and_a_script_does_not(
    tmp_path: Path, facts: dict[str, str | None], says: str
) -> None:
    path = python_that_says(tmp_path, **facts)
    with pytest.raises(PythonRefusedError, match=says):
        await look_at(path, NODE, dict(os.environ), None, is_script=False)
    await look_at(path, NODE, dict(os.environ), None, is_script=True)


async def test_what_is_no_interpreter_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("x")
    wrong = tmp_path / "wrong"
    wrong.write_text("#!/bin/sh\necho not here >&2\nexit 1\n")
    wrong.chmod(0o755)
    for path, says in ((tmp_path / "none", "no such file"), (tmp_path, "is no program"), (plain, "is no program"), (wrong, "not here")):
        with pytest.raises(PythonRefusedError, match=says):
            await look_at(str(path), NODE, dict(os.environ), None, is_script=True)


async def test_a_python_that_does_not_answer_in_time_is_asked_again_another_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with a slow disk ended jobs for good."""
    monkeypatch.setattr(own_python, "LOOK_SECONDS", 0.05)
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(PythonNotAnsweringError, match=r"did not say its version within 0\.05 s"):
        await look_at(str(slow), NODE, dict(os.environ), None, is_script=True)


@pytest.mark.parametrize("stream", [1, 2])
async def test_a_program_that_prints_without_end_fills_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: int) -> None:
    endless = tmp_path / "endless"
    endless.write_text(f"#!/bin/sh\nexec yes >&{stream}\n")
    endless.chmod(0o755)
    read, decode = list[int](), msgspec.json.decode

    def decode_and_note(said: bytes, **options: Any) -> Any:
        read.append(len(said))
        return decode(said, **options)

    monkeypatch.setattr(msgspec.json, "decode", decode_and_note)
    with pytest.raises(PythonRefusedError, match="is no Python that runs on this node: "):
        await look_at(str(endless), NODE, dict(os.environ), None, is_script=True)
    assert read[0] <= 2 * own_python.MOST_BYTES


async def test_packages_installed_there_meanwhile_make_it_another_spawner(tmp_path: Path) -> None:
    path = python_that_says(tmp_path)
    found = await look_at(path, NODE, dict(os.environ), None, is_script=False)
    before = key_of_python(path, found, NODE)
    assert key_of_python(path, found, NODE) == before
    os.utime(tmp_path, (1.0, 1.0))
    assert key_of_python(path, found, NODE) != before
    with pytest.raises(PythonRefusedError):
        key_of_python(path, replace_packages(found, str(tmp_path / "gone")), NODE)


def replace_packages(found: InterpreterFacts, packages: str) -> InterpreterFacts:
    return InterpreterFacts(found.python, found.torch, found.prefix, packages)


def test_a_card_lock_finds_the_spawner_in_its_command_line() -> None:
    command = spawner_command("/venv/bin/python", replace(NODE, sites=("/agent",)))
    assert command[0] == "/venv/bin/python"
    assert command[-1] == "paceline.cluster.agent.spawner"
    assert "addsitedir(each) for each in ['/agent']" in command[2]


def test_it_is_activated_as_its_kind_is(tmp_path: Path) -> None:
    assert variables_of(tmp_path / "bin" / "python") == {}
    (tmp_path / "conda-meta").mkdir()
    assert variables_of(tmp_path / "bin" / "python") == {"CONDA_PREFIX": str(tmp_path)}
    (tmp_path / "pyvenv.cfg").touch()
    assert variables_of(tmp_path / "bin" / "python") == {"VIRTUAL_ENV": str(tmp_path)}
