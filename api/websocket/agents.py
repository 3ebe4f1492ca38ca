"""The agents' control channel: hello, then heartbeats and observations in, desired assignments out.

What should be done is computed from the rows each time; a nudge only makes it sooner. It is sent when its revision is new, and
again every few seconds until the agent has answered that revision.

A node's row names the channel that speaks for it. A second connection, to this replica or another, supersedes the first.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic

import msgspec
from fastapi import APIRouter, WebSocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from api.deps import Services, bearer, services_of
from api.services import bus, identity, observations, presence
from api.services.assignments import desired_for
from cluster.protocol import (
    CHANNEL_PATH,
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    Desired,
    FromAgent,
    Heartbeat,
    Hello,
    Observed,
    Refused,
    ToAgent,
    Welcome,
)
from cluster.states import NodeState
from db.base import new_id
from db.models.nodes import NodeRow
from db.repositories import nodes as node_rows

logger = logging.getLogger(__name__)
router = APIRouter()

HELLO_SECONDS = 10.0
#: Heartbeats that come faster than this are not written.
HEARTBEAT_WRITE_SECONDS = 1.5
INVALID_CREDENTIAL, PROTOCOL_ERROR, REFUSED = 4401, 4400, 4403
#: Why a channel has closed, if it was this process that left.
SERVICE_RESTART = 1012

REMOVED = Refused(code="removed", message="this node was removed; join again with a new token", final=True)
SUPERSEDED = Refused(code="superseded", message="another agent has connected with this node's credential", final=True)

_from_agent: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent)


class AgentProtocolError(Exception):
    """The agent said something that we cannot read, or said nothing at all."""


@router.websocket(CHANNEL_PATH.removeprefix("/api/v1"))
async def agent_channel(websocket: WebSocket) -> None:
    services = services_of(websocket)
    node = await _node_of(websocket, services)
    if node is None:
        await websocket.close(INVALID_CREDENTIAL, "this is no node's credential")
        return
    await websocket.accept()
    channel = Channel(websocket, services, node.id)
    try:
        hello = await channel.receive_hello()
        refusal = await channel.admit(hello)
        if refusal is not None:
            await channel.refuse(refusal)
            return
        await _converse(channel)
    except (AgentProtocolError, msgspec.DecodeError) as error:
        logger.warning("the channel of node %s is closed: %s", node.name, error)
        await channel.close(PROTOCOL_ERROR, str(error)[:100])
    except WebSocketDisconnect:
        logger.info("the channel of node %s has closed", node.name)


async def _node_of(websocket: WebSocket, services: Services) -> NodeRow | None:
    secret = bearer(websocket)
    if secret is None:
        return None
    async with services.control.read() as session:
        return await identity.node_of_credential(session, secret)


async def _converse(channel: Channel) -> None:
    """Listen and speak side by side until either ends: a channel that only spoke would never notice that its peer has left. An
    agent whose coordinator leaves has not left, and must not look so to the next one: it is about to connect there."""
    left = True
    tasks = [asyncio.create_task(channel.listen()), asyncio.create_task(channel.speak())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except WebSocketDisconnect as end:
        left = end.code != SERVICE_RESTART
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if left:
            await channel.farewell()


class Channel:
    """One connection of one node."""

    def __init__(self, websocket: WebSocket, services: Services, node_id: str) -> None:
        self.node_id = node_id
        self._websocket = websocket
        self._services = services
        self._id = new_id()
        self._sent_revision = -1
        self._observed_revision = -1
        self._last_heartbeat = 0.0

    async def receive_hello(self) -> Hello:
        try:
            message = _from_agent.decode(await asyncio.wait_for(self._websocket.receive_text(), HELLO_SECONDS))
        except TimeoutError:
            raise AgentProtocolError(f"no hello within {HELLO_SECONDS:.0f} s") from None
        if not isinstance(message, Hello):
            raise AgentProtocolError(f"the first message is {type(message).__name__}, not Hello")
        return message

    async def admit(self, hello: Hello) -> Refused | None:
        """Take the node in and welcome it, or say why not."""
        if not OLDEST_PROTOCOL_VERSION <= hello.protocol <= PROTOCOL_VERSION:
            text = f"protocol {hello.protocol} is not spoken here; {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION} are: install the matching version"
            return Refused(code="protocol_version", message=text, final=True)
        async with self._services.write() as session:
            node = await presence.hello(session, self.node_id, self._id, hello, self._services.now())
        if node is None:
            return REMOVED
        settings = self._services.settings
        protocol = min(hello.protocol, PROTOCOL_VERSION)
        await self._send(
            Welcome(
                protocol=protocol,
                node_id=self.node_id,
                heartbeat_seconds=settings.heartbeat_seconds,
                observe_seconds=settings.observe_seconds,
            )
        )
        return None

    async def listen(self) -> None:
        while True:
            message = _from_agent.decode(await self._websocket.receive_text())
            match message:
                case Heartbeat():
                    await self._note_heartbeat(message)
                case Observed():
                    await self._note_observed(message)
                case Hello():
                    raise AgentProtocolError("a second hello on one connection")

    async def speak(self) -> None:
        with self._services.bus.subscribe(bus.node(self.node_id)) as nudges:
            while True:
                desired = await self._desired()
                if isinstance(desired, Refused):
                    await self.refuse(desired)
                    return
                if desired.revision > min(self._sent_revision, self._observed_revision):
                    await self._send(desired)
                    self._sent_revision = desired.revision
                await nudges.wait(self._services.settings.observe_seconds)

    async def farewell(self) -> None:
        async with self._services.write() as session:
            await presence.farewell(session, self.node_id, self._id, self._services.now())

    async def refuse(self, refusal: Refused) -> None:
        await self._send(refusal)
        await self.close(REFUSED, refusal.code)

    async def close(self, code: int, reason: str) -> None:
        if self._websocket.application_state is not WebSocketState.DISCONNECTED:
            await self._websocket.close(code, reason)

    async def _desired(self) -> Desired | Refused:
        """The node is read first: should an assignment change meanwhile, its new revision is still to come."""
        async with self._services.control.read() as session:
            node = await node_rows.get(session, self.node_id)
            if node is None or node.state is NodeState.GONE:
                return REMOVED
            if node.channel_id != self._id:
                return SUPERSEDED
            return await desired_for(session, node)

    async def _note_heartbeat(self, heartbeat: Heartbeat) -> None:
        if monotonic() - self._last_heartbeat < HEARTBEAT_WRITE_SECONDS:
            return
        self._last_heartbeat = monotonic()
        async with self._services.write() as session:
            await presence.heartbeat(session, self.node_id, heartbeat, self._services.now())

    async def _note_observed(self, observed: Observed) -> None:
        async with self._services.write() as session:
            if not await presence.speaks_for(session, self._id, self.node_id):
                return
            await observations.apply(session, self.node_id, observed, self._services.now())
        self._observed_revision = observed.revision

    async def _send(self, message: ToAgent) -> None:
        await self._websocket.send_text(msgspec.json.encode(message).decode())
