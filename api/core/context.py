"""The objects that live as long as the process, and the one transaction in which a change is made and published."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.admission import Admission
from paceline.api.core.bus import Bus
from paceline.api.core.daemon_calls import DaemonCalls
from paceline.api.core.disk import DiskWatch
from paceline.api.core.folder_looks import FolderLooks
from paceline.api.core.guest import GuestPass
from paceline.api.core.last_uses import LastUses
from paceline.api.core.node_identities import NodeIdentities
from paceline.api.core.planner import Planner
from paceline.api.core.troubles import Troubles
from paceline.api.core.uptime import Uptime
from paceline.api.core.vault import Vault
from paceline.api.settings import Settings
from paceline.db.session import Database

_TOPICS = "paceline_topics"
#: For a turn at reading what may take hundreds of MB of memory.
UNPACKING_WAIT_SECONDS = 10.0
#: How many looks at checkpoints' folders may be stuck in file systems that do not answer.
MOST_CHECKPOINT_LOOKS = 16


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Services:
    """The objects that live as long as the process. Loops and sockets get it from `app.state.services`."""

    settings: Settings
    control: Database
    metrics: Database
    last_uses: LastUses
    bus: Bus = field(default_factory=Bus)
    disk: DiskWatch = field(default_factory=lambda: DiskWatch(None))
    planner: Planner = field(default_factory=Planner)
    folders: FolderLooks = field(default_factory=FolderLooks)
    checkpoint_looks: DaemonCalls = field(default_factory=lambda: DaemonCalls(MOST_CHECKPOINT_LOOKS))
    troubles: Troubles = field(default_factory=Troubles)
    uptime: Uptime = field(default_factory=Uptime)
    guest: GuestPass = field(default_factory=GuestPass)
    unpacking: Admission = field(default_factory=lambda: Admission("reads of what ranks have logged", 2, UNPACKING_WAIT_SECONDS))
    now: Callable[[], datetime] = utc_now
    node_identities: NodeIdentities = field(init=False)
    vault: Vault = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "node_identities", NodeIdentities(self.control))
        object.__setattr__(self, "vault", Vault(self.settings))
        self.bus.watch(self.node_identities.forget)

    @asynccontextmanager
    async def write(self, *, request: bool = False) -> AsyncIterator[AsyncSession]:
        """One control transaction; topics that `nudge_after_commit` collected in it are published once it is durable. `request`: a user
        waits for the answer."""
        async with self.control.write(request=request) as session:
            yield session
        self.bus.publish(*cast("set[str]", session.info.get(_TOPICS, set())))


def nudge_after_commit(session: AsyncSession, *topics: str) -> None:
    """Nudge these topics when (and only if) the transaction of this session, from `Services.write`, commits."""
    session.info.setdefault(_TOPICS, set()).update(topics)
