"""`paceline worker` becomes the agent, with what it was told."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.cluster.agent.notices import NoticeSettings
from paceline.cluster.agent.settings import AgentSettings, read_settings

OPTIONS = "--server http://127.0.0.1:1 --port-range 29400-29499 --output-cap 64MiB --spool-kept 32MiB --quiet-seconds 90 --orphan-seconds 1800 --run-as trainer --memory-limit 16GiB --pass-env A,B --pass-env C"
NOTICES = "--server http://127.0.0.1:1 --ends-in 3600 --drain-seconds 60 --drain-on-term 20 --notice-command 'spot --check' --notice-file /run/spot --returns"


def settings_of(monkeypatch: pytest.MonkeyPatch, *options: str) -> AgentSettings:
    """What the agent reads that `paceline worker` with these options becomes."""
    started: list[list[str]] = []

    def become(_: str, arguments: Sequence[str], __: Mapping[str, str]) -> None:
        started.append(list(arguments))

    monkeypatch.setattr(os, "execve", become)
    done = CliRunner().invoke(app, ["worker", *options])
    assert done.exit_code == 0, done.output
    return read_settings(started[0][3:])


def test_what_the_worker_is_told_is_what_its_agent_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(monkeypatch, *OPTIONS.split())
    assert (settings.ports, settings.output_cap, settings.spool_kept) == (range(29400, 29500), 64 << 20, 32 << 20)
    assert (settings.quiet_seconds, settings.orphan_seconds) == (90.0, 1800.0)
    confinement = settings.confinement
    assert (confinement.run_as, confinement.memory_limit, confinement.pass_environment) == ("trainer", 16 << 30, ("A", "B", "C"))


def test_where_notices_come_from_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    notices = settings_of(monkeypatch, *shlex.split(NOTICES)).notices
    assert notices == NoticeSettings(3600.0, 60.0, 20.0, ("spot", "--check"), Path("/run/spot"), returns=True)


def test_checkpoints_lie_in_the_data_folder_and_not_where_the_worker_was_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    server = ("--server", "http://127.0.0.1:1")
    assert settings_of(monkeypatch, *server, "--data", str(tmp_path)).checkpoints == tmp_path / "checkpoints"
    monkeypatch.chdir(tmp_path)
    assert settings_of(monkeypatch, *server).checkpoints == tmp_path / ".paceline" / "checkpoints"
    assert settings_of(monkeypatch, *server, "--checkpoints", "shared").checkpoints == tmp_path / "shared"
