"""`paceline worker` becomes the agent, with what it was told."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import pytest
from typer.testing import CliRunner

from paceline.cli.app import app
from paceline.cluster.agent.settings import read_settings

OPTIONS = "--server http://127.0.0.1:1 --port-range 29400-29499 --output-cap 64MiB --quiet-seconds 90 --run-as trainer --memory-limit 16GiB --pass-env A,B --pass-env C"


def test_what_the_worker_is_told_is_what_its_agent_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []

    def become(_: str, arguments: Sequence[str], __: Mapping[str, str]) -> None:
        started.append(list(arguments))

    monkeypatch.setattr(os, "execve", become)
    done = CliRunner().invoke(app, ["worker", *OPTIONS.split()])
    assert done.exit_code == 0, done.output
    settings = read_settings(started[0][3:])
    assert (settings.ports, settings.output_cap, settings.quiet_seconds) == (range(29400, 29500), 64 << 20, 90.0)
    confinement = settings.confinement
    assert (confinement.run_as, confinement.memory_limit, confinement.pass_environment) == ("trainer", 16 << 30, ("A", "B", "C"))
