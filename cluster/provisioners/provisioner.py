"""The one interface to whatever gives a cluster its nodes: SSH hosts, a Slurm partition, a Ray cluster, Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from paceline.tls.trust import travels_readable


class LaunchPhase(StrEnum):
    """Where a provider has come to with one node that was asked for."""

    PENDING = "pending"  # the provider has taken it, and it does not run yet: a queue, a download
    RUNNING = "running"  # its agent was started; whether it has joined is told by the agent itself
    ENDED = "ended"  # it runs no more, or never will


@dataclass(frozen=True)
class WantedNode:
    """One node that is wanted. Its name is unique in the cluster: a launch that is repeated under the same name is the same node."""

    name: str
    pool: str
    server: str
    join_token: str = field(repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)
    slots: int | None = None  # None: what the machine has
    launch: str = ""  # the id of the launch that it is asked for by, which no other coordinator has

    @property
    def server_words(self) -> list[str]:
        """The words of `paceline worker` that say where the coordinator is, at the address that its admin has chosen."""
        return ["--server", self.server, *(["--insecure-http"] if travels_readable(self.server) else [])]


@dataclass(frozen=True)
class SeenLaunch:
    """One node as its provider sees it now."""

    phase: LaunchPhase
    reason: str = ""  # in words, where it waits or has ended


class ProvisionerError(Exception):
    """A provider refuses or cannot be reached. `remedy` is the way out, for people. `nothing_began`: a launch was refused before anything of it could
    have been started, so that there is nothing to end."""

    def __init__(self, message: str, remedy: str = "", *, nothing_began: bool = False) -> None:
        super().__init__(message)
        self.remedy, self.nothing_began = remedy, nothing_began


class KeptResource(Protocol):
    """A thing that a provider keeps open between its calls, such as a watch, and can do without; it ends by itself once it is not used."""

    async def close(self) -> None:
        """End it at once."""


@dataclass(frozen=True)
class ProvisionerContext:
    """The coordinator, as far as a provider needs it."""

    data: Path  # its folder, for files that a provider makes once
    secret: Callable[[str], str | None]  # by name; None: there is no such secret
    kept: dict[str, KeptResource] | None = None  # by a name that says all that it depends on; None: nothing lasts longer than a call


class Provisioner(Protocol):
    """Starts and ends agents on machines of one pool. It keeps no state of its own: `handle` is all that it needs to find a node again,
    and what is kept open in its context spares it questions alone."""

    async def launch(self, request: WantedNode) -> str:
        """Ask for one node. Returns its handle, a text of at most 256 characters. Raises ProvisionerError."""

    async def poll(self, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        """Look at nodes that were launched; one that the provider does not know any more has ended. A provider that starts nothing itself (`manual`)
        cannot tell: its nodes wait until their agents join, or nobody wants them. Raises ProvisionerError."""

    async def terminate(self, handle: str) -> None:
        """End a node and wait for nothing; one that has ended already is no error. Raises ProvisionerError."""
