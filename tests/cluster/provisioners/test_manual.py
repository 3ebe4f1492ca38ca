"""Nodes that people start: the provider keeps the promises that do not need an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.cluster.provisioners.manual import ManualProvisioner
from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext
from paceline.cluster.provisioners.settings import ManualSettings
from tests.cluster.provisioners.conformance import HandleConformance, ProviderEngine, request


class Nobody(ProviderEngine):
    """Whoever may run the command some day."""

    starts_nodes = False

    def __init__(self, folder: Path) -> None:
        self.provisioner, self.folder = ManualProvisioner(ManualSettings(), ProvisionerContext(folder, lambda _: None)), folder

    def started(self) -> int:
        return len([*self.folder.iterdir()])

    def break_down(self) -> None:
        """Do nothing: there is no engine."""

    def visible(self) -> str:
        return ""


@pytest.fixture
def engine(tmp_path: Path) -> Nobody:
    return Nobody(tmp_path)


class TestManual(HandleConformance):
    """The promises of every provider."""


async def test_a_launch_waits_and_says_for_whom(engine: Nobody) -> None:
    handle = await engine.provisioner.launch(request())
    seen = (await engine.provisioner.poll([handle]))[handle]
    assert (seen.phase, seen.reason) == (LaunchPhase.PENDING, "somebody has to run its command on a machine")
