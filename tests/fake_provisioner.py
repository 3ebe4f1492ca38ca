"""A provider in this process: it remembers what it was asked for, and says what a test tells it to say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.cluster.provisioners.provisioner import (
    LaunchPhase,
    Provisioner,
    ProvisionerContext,
    ProvisionerError,
    SeenLaunch,
    WantedNode,
)


@dataclass
class FakeProvisioner:
    """Launches are known by their name, as the interface asks; `calls` has every call in order."""

    requests: dict[str, WantedNode] = field(default_factory=dict)
    seen: dict[str, SeenLaunch] = field(default_factory=dict)
    calls: list[tuple[str, str]] = field(default_factory=list)
    refusal: ProvisionerError | None = None
    #: What follows once `gate` is open, in place of an answer.
    late_refusal: ProvisionerError | None = None
    #: Set: a launch is taken, and its answer is held back until then.
    gate: asyncio.Event | None = None

    def factory(self, settings: Mapping[str, Any], context: ProvisionerContext) -> Provisioner:
        return self

    async def launch(self, request: WantedNode) -> str:
        self.calls.append(("launch", request.name))
        if self.refusal is not None:
            raise self.refusal
        self.requests[request.name] = request
        self.seen.setdefault(f"fake/{request.name}", SeenLaunch(LaunchPhase.PENDING, "in the queue"))
        if self.gate is not None:
            await self.gate.wait()
        if self.late_refusal is not None:
            raise self.late_refusal
        return f"fake/{request.name}"

    async def poll(self, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        self.calls += [("poll", handle) for handle in handles]
        return {handle: self.seen.get(handle, SeenLaunch(LaunchPhase.ENDED, "unknown")) for handle in handles}

    async def terminate(self, handle: str) -> None:
        self.calls.append(("terminate", handle))
        if self.refusal is not None:
            raise self.refusal
        self.seen[handle] = SeenLaunch(LaunchPhase.ENDED, "terminated")

    def count(self, verb: str) -> int:
        return sum(call == verb for call, _ in self.calls)
