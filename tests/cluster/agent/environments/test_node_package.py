"""The programs of a node's packages, as they are found and packed."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import pytest

from paceline.cluster.agent.environments.node_package import NodeCommand, find_commands, node_package


def files_of(wheel: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        return {name.rpartition("/")[2]: archive.read(name).decode() for name in archive.namelist()}


def test_torch_brings_torchrun() -> None:
    found = {command.name: command for command in find_commands()}
    assert found["torchrun"] == NodeCommand("torchrun", "torch", calls="torch.distributed.run:main")


@pytest.mark.parametrize(
    ("first", "found"),
    [("#!/opt/venv/bin/python3.11\n", b"print(1)\n"), ("#!python\n", b""), ("#!/bin/sh\n", b""), ("\x7fELF", b"")],
)
def test_scripts_are_taken_where_python_runs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, found: bytes) -> None:
    info = tmp_path / "lib" / "site-packages" / "old_style-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: old_style\nVersion: 1\n")
    (info / "RECORD").write_text("old.py,,\n../../bin/old-tool,sha256=x,9\n../../bin/removed,,\n")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "old-tool").write_text(f"{first}print(1)\n")
    monkeypatch.setattr(sys, "path", [str(info.parent)])
    assert find_commands() == ((NodeCommand("old-tool", "old-style", script=found),) if found else ())


def test_programs_of_packages_that_the_job_installs_are_left_to_them() -> None:
    commands = (NodeCommand("torchrun", "torch", calls="t:main"), NodeCommand("deepspeed", "deepspeed", script=b"print(1)\n"))
    files = files_of(node_package(["/agent/packages"], commands, without=()))
    assert files["entry_points.txt"] == "[console_scripts]\ntorchrun = t:main\n"
    assert files["deepspeed"] == "#!python\nprint(1)\n"
    assert "deepspeed" not in files_of(node_package(["/agent/packages"], commands, without={"deepspeed"}))
