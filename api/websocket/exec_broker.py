"""Brings the two ends of an exec session together: a client that waits here, and the keeper that its node's agent starts.

The client's replica of the coordinator writes a row, and waits. The replica that has the agent's channel, which may be another one, reads the row and tells
the agent. The keeper connects to the address that the agent knows: where a load balancer leads it to a replica without the client, that one says
ELSEWHERE, and the keeper tries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from time import monotonic

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from paceline.api.core import bus
from paceline.api.core.background import in_background
from paceline.api.core.context import Services
from paceline.api.services.jobs import exec_sessions
from paceline.cluster.protocol import OpenExec, RankKey, ToAgent
from paceline.db.models.exec_sessions import ExecSessionRow
from paceline.db.repositories import exec_sessions as rows

logger = logging.getLogger(__name__)
#: How soon what another replica wrote is found where no nudge tells of it; and one replica alone looks again should a nudge be lost.
OTHER_REPLICAS_SECONDS, LOOK_SECONDS = 0.8, 5.0
SEEN_SECONDS = 15.0
NO_COMMANDS = (
    "the agent of this rank's node runs no commands: it is simulated, or older than this coordinator; update it and start it again"
)

SendToAgent = Callable[[ToAgent], Awaitable[None]]


@dataclass
class WaitingClient:
    """A session whose client is connected to this process. `keeper` is set when the other end has come; `over` ends the keeper's connection."""

    id: str
    node_id: str
    keeper: asyncio.Future[WebSocket] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(eq=False)
class ServedChannel:
    """The channel of an agent that is connected to this process. `send`: None where the agent knows nothing of commands."""

    send: SendToAgent | None


class ExecBroker:
    """The exec sessions and the agents' channels of this process."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._channels: dict[str, ServedChannel] = {}
        self._clients: dict[str, WaitingClient] = {}
        self._seen_at = 0.0

    @contextlib.contextmanager
    def channel(self, node_id: str, send: SendToAgent | None) -> Iterator[None]:
        """A context in which this process has the channel of a node. `send`: None where its agent knows nothing of commands.
        A second channel of the node, of an agent that has connected again, takes the place of the first."""
        self._channels[node_id] = channel = ServedChannel(send)
        self._services.bus.nudge([bus.EXEC])
        try:
            yield
        finally:
            if self._channels.get(node_id) is channel:
                del self._channels[node_id]

    @contextlib.contextmanager
    def client(self, row: ExecSessionRow) -> Iterator[WaitingClient]:
        """A context in which this process has the client of a session."""
        self._clients[row.id] = waiting = WaitingClient(row.id, row.node_id)
        try:
            yield waiting
        finally:
            del self._clients[row.id]
            waiting.over.set()

    def find(self, session_id: str, node_id: str) -> WaitingClient | None:
        """The client of a session of this node, if this process has it and no keeper has come yet."""
        waiting = self._clients.get(session_id)
        return waiting if waiting is not None and waiting.node_id == node_id and not waiting.keeper.done() else None

    def running(self) -> AbstractAsyncContextManager[None]:
        return in_background("exec-sessions", self._run)

    async def _run(self) -> None:
        alone = self._services.control.is_sqlite
        with self._services.bus.subscribe(bus.EXEC) as nudges:
            while True:
                await self.step_once()
                await nudges.wait(LOOK_SECONDS if alone else OTHER_REPLICAS_SECONDS)

    async def step_once(self) -> None:
        """Tell agents of new sessions. Now and then say which sessions live, and note the end of those of which nobody says so."""
        if self._channels:
            async with self._services.control.read() as session:
                new = await rows.not_asked(session, self._channels.keys())
            if new:
                await self._tell(list(new))
        if monotonic() - self._seen_at >= SEEN_SECONDS:
            self._seen_at = monotonic()
            async with self._services.write() as session:
                if self._clients:
                    await rows.mark_seen(session, self._clients.keys(), self._services.now())
                await exec_sessions.close_silent(session, self._services.now())

    async def _tell(self, new: list[ExecSessionRow]) -> None:
        told, refused = [], []
        for row in new:
            channel = self._channels.get(row.node_id)
            if channel is None:  # it has left meanwhile; the next one is told
                continue
            if channel.send is None:
                refused.append(row.id)
                continue
            try:
                await channel.send(OpenExec(id=row.id, key=RankKey(row.job_id, row.generation, row.rank)))
            except (WebSocketDisconnect, RuntimeError) as error:  # it is about to leave `_channels`; the next one is told
                logger.info("the agent of node %s has gone before it was told of a session: %s", row.node_id, error)
                continue
            told.append(row.id)
        async with self._services.write() as session:
            if told:
                await rows.mark_asked(session, told)
            if refused:
                await rows.mark_refused(session, refused, NO_COMMANDS)
        if refused:
            self._services.bus.publish(bus.EXEC)
