"""Nodes that people start by a command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, SeenLaunch, WantedNode
from paceline.cluster.provisioners.settings import ManualSettings

WAITS = "somebody has to run its command on a machine"


class ManualProvisioner:
    """Starts nothing: a launch waits for the machine that joins under its name."""

    def __init__(self, settings: ManualSettings, context: ProvisionerContext) -> None:
        self.settings = settings

    async def launch(self, request: WantedNode) -> str:
        """Return the node's name, which is all that there is to find it again."""
        return request.name

    async def poll(self, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        return {handle: SeenLaunch(LaunchPhase.PENDING, WAITS) for handle in handles}

    async def terminate(self, handle: str) -> None:
        """Do nothing: the agent was told to leave by the coordinator, and its machine is its owner's."""
