"""The agents' control channel: hello, then heartbeats and observations in, desired assignments out.

The assignments are computed from the rows when the node's revision is new, which a nudge tells or, if it was lost, a look at all
nodes every few seconds (`services/scheduling/assignment_watch.py`). It is sent again until the agent has answered that revision.

Idle nodes cost next to nothing: heartbeats are written for all of them at once, and an observation equal to the one before
is not applied to the rows again.

A node's row names the channel that speaks for it. A second connection, to this replica or another, supersedes the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from contextlib import AbstractContextManager
from time import monotonic

import msgspec
from fastapi import APIRouter, WebSocket
from sqlalchemy.exc import SQLAlchemyError
from starlette.websockets import WebSocketDisconnect, WebSocketState

from paceline.api.core import bus, identity
from paceline.api.core.context import Services
from paceline.api.deps import bearer, services_of
from paceline.api.services.nodes import notices, presence
from paceline.api.services.nodes.presence import Heartbeats
from paceline.api.services.scheduling.assignment_watch import AssignmentWatch
from paceline.api.services.scheduling.node_writer import NodeWriter
from paceline.api.websocket.exec_broker import ExecBroker
from paceline.cluster.protocol import (
    CHANNEL_PATH,
    MOST_SLOTS,
    OLDEST_PROTOCOL_VERSION,
    PROTOCOL_VERSION,
    AgentHello,
    ConnectionRefused,
    Desired,
    FromAgent,
    Heartbeat,
    Leaving,
    Notice,
    Observed,
    ToAgent,
    Welcome,
    encode_to_agent,
)
from paceline.cluster.states import NodeState
from paceline.db.base import new_id
from paceline.db.errors import DatabaseError
from paceline.db.models.nodes import NodeRow

logger = logging.getLogger(__name__)
router = APIRouter()

HELLO_SECONDS = 10.0
#: An observation that says nothing new is brought into the rows all the same when the last one was this long ago, give or take a half:
#: agents that connected together must not all be due together.
APPLY_AGAIN_SECONDS = 60.0
#: A channel looks at its node's row when it is nudged; and this often, should everything else have failed.
LOOK_AGAIN_SECONDS = 60.0
INVALID_CREDENTIAL, PROTOCOL_ERROR, REFUSED = 4401, 4400, 4403
#: Why a channel has closed, if it was this process that left.
SERVICE_RESTART = 1012
TRY_AGAIN_LATER = 1013

REMOVED = ConnectionRefused(code="removed", message="this node was removed; join again with a new token", final=True)
SUPERSEDED = ConnectionRefused(code="superseded", message="another agent has connected with this node's credential", final=True)

_from_agent: msgspec.json.Decoder[FromAgent] = msgspec.json.Decoder(FromAgent)


class AgentProtocolError(Exception):
    """The agent sent an unreadable message, or none at all."""


@router.websocket(CHANNEL_PATH.removeprefix("/api/v1"))
async def agent_channel(websocket: WebSocket) -> None:
    services = services_of(websocket)
    try:
        node = await _node_of(websocket, services)
    except (DatabaseError, SQLAlchemyError) as error:
        logger.warning("a channel is refused, its agent will connect again: %s", error)
        await websocket.close(TRY_AGAIN_LATER, "the database is busy or away; try again")
        return
    if node is None:
        await websocket.close(INVALID_CREDENTIAL, "this is no node's credential")
        return
    await websocket.accept()
    channel = AgentChannel(websocket, services, node.id)
    try:
        hello = await channel.receive_hello()
        refusal = await channel.admit(hello)
        if refusal is not None:
            await channel.refuse(refusal)
            return
        with channel.served():
            await _run_channel(channel)
    except (AgentProtocolError, msgspec.DecodeError) as error:
        logger.warning("the channel of node %s is closed: %s", node.name, error)
        await channel.close(PROTOCOL_ERROR, str(error)[:100])
    except (DatabaseError, SQLAlchemyError) as error:
        logger.warning("the channel of node %s is closed, its agent will connect again: %s", node.name, error)
        await channel.close(TRY_AGAIN_LATER, "the database is busy or away; try again")
    except WebSocketDisconnect:
        logger.info("the channel of node %s has closed", node.name)


async def _node_of(websocket: WebSocket, services: Services) -> NodeRow | None:
    secret = bearer(websocket)
    if secret is None:
        return None
    async with services.control.read() as session:
        return await identity.node_of_credential(session, secret)


async def _run_channel(channel: AgentChannel) -> None:
    """Listen and send side by side until either ends: a channel that only sent would never notice that its peer has left. An agent whose
    coordinator ends has not left, and must not look so to the next coordinator: it is about to connect there."""
    left = True
    tasks = [asyncio.create_task(channel.listen()), asyncio.create_task(channel.send_updates())]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    except WebSocketDisconnect as end:
        left = end.code != SERVICE_RESTART
        raise
    except (DatabaseError, SQLAlchemyError):
        left = False  # a farewell would wait for the same database; silence says it as well
        raise
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if left:
            await channel.note_closed()


class AgentChannel:
    """One connection of one node."""

    def __init__(self, websocket: WebSocket, services: Services, node_id: str) -> None:
        self.node_id = node_id
        self._websocket = websocket
        self._services = services
        state = websocket.app.state
        self._heartbeats: Heartbeats = state.heartbeats
        self._writer: NodeWriter = state.node_writer
        self._watch: AssignmentWatch = state.assignment_watch
        self._broker: ExecBroker = state.exec_broker
        self._runs_commands = False  # its agent knows OpenExec
        self._id = new_id()
        self._sent_revision = -1
        self._observed_revision = -1
        self._applied = ""  # the last observation, as it came
        self._apply_again_at = 0.0

    async def receive_hello(self) -> AgentHello:
        try:
            message = _from_agent.decode(await asyncio.wait_for(self._websocket.receive_text(), HELLO_SECONDS))
        except TimeoutError:
            raise AgentProtocolError(f"no hello within {HELLO_SECONDS:.0f} s") from None
        if not isinstance(message, AgentHello):
            raise AgentProtocolError(f"the first message is {type(message).__name__}, not AgentHello")
        return message

    async def admit(self, hello: AgentHello) -> ConnectionRefused | None:
        """Admit the node and welcome it, or refuse it with a reason."""
        if not OLDEST_PROTOCOL_VERSION <= hello.protocol <= PROTOCOL_VERSION:
            text = f"protocol {hello.protocol} is not spoken here; {OLDEST_PROTOCOL_VERSION} to {PROTOCOL_VERSION} are: install the matching version"
            return ConnectionRefused(code="protocol_version", message=text, final=True)
        if not 0 <= hello.inventory.slots <= MOST_SLOTS:
            text = f"slots={hello.inventory.slots} is not between 0 and {MOST_SLOTS}; start the agent with fewer (--slots)"
            return ConnectionRefused(code="too_many_slots", message=text, final=True)
        now = self._services.now()
        node = await self._writer.write(self.node_id, lambda session: presence.hello(session, self.node_id, self._id, hello, now))
        if node is None:
            return REMOVED
        self._runs_commands = hello.runs_commands
        settings = self._services.settings
        protocol = min(hello.protocol, PROTOCOL_VERSION)
        await self._send(
            Welcome(
                protocol=protocol,
                node_id=self.node_id,
                heartbeat_seconds=settings.heartbeat_seconds,
                observe_seconds=settings.observe_seconds,
                takes_notices=True,
            )
        )
        return None

    def served(self) -> AbstractContextManager[None]:
        """A context in which exec sessions of this node are handed to its agent."""
        return self._broker.channel(self.node_id, self._send if self._runs_commands else None)

    async def listen(self) -> None:
        while True:
            text = await self._websocket.receive_text()
            if text == self._applied and monotonic() < self._apply_again_at:
                continue  # what is in the rows already
            message = _from_agent.decode(text)
            match message:
                case Heartbeat():
                    self._heartbeats.note(self.node_id, message, self._services.now())
                case Observed():
                    await self._note_observed(message, text)
                case Notice():
                    await self._note_notice(message)
                case Leaving():
                    await self._note_leaving()
                case AgentHello():
                    raise AgentProtocolError("a second hello on one connection")

    async def _note_notice(self, notice: Notice) -> None:
        now = self._services.now()
        await self._writer.write(self.node_id, lambda session: notices.take(session, self.node_id, self._id, notice, now))

    async def _note_leaving(self) -> None:
        self._heartbeats.forget(self.node_id)
        now = self._services.now()
        await self._writer.write(self.node_id, lambda session: presence.leave(session, self.node_id, self._id, now))

    async def send_updates(self) -> None:
        with self._services.bus.subscribe(bus.node(self.node_id)) as nudges:
            while True:
                desired = await self._news()
                if isinstance(desired, ConnectionRefused):
                    await self.refuse(desired)
                    return
                if desired is not None:
                    await self._send(desired)
                    self._sent_revision = desired.revision
                if await nudges.wait(self._seconds_until_resend()):
                    self._applied = ""

    def _seconds_until_resend(self) -> float:
        """Seconds until an unanswered message is sent again."""
        answered = self._observed_revision >= self._sent_revision
        return LOOK_AGAIN_SECONDS if answered else self._services.settings.observe_seconds

    async def note_closed(self) -> None:
        now = self._services.now()
        await self._writer.write(self.node_id, lambda session: presence.note_closed(session, self.node_id, self._id, now))

    async def refuse(self, refusal: ConnectionRefused) -> None:
        await self._send(refusal)
        await self.close(REFUSED, refusal.code)

    async def close(self, code: int, reason: str) -> None:
        if self._websocket.application_state is not WebSocketState.DISCONNECTED:
            with contextlib.suppress(WebSocketDisconnect):  # the agent has gone first
                await self._websocket.close(code, reason)

    async def _news(self) -> Desired | ConnectionRefused | None:
        """The news for the agent: its assignments, unless it has answered them; why the connection ends."""
        news = await self._watch.news(self.node_id, min(self._sent_revision, self._observed_revision))
        if news.mark is None or news.mark.state is NodeState.GONE:
            return REMOVED
        return news.desired if news.mark.channel_id == self._id else SUPERSEDED

    async def _note_observed(self, observed: Observed, text: str) -> None:
        self._applied = ""
        if await self._writer.report(self.node_id, self._id, observed, self._services.now()):
            self._observed_revision = observed.revision
            self._applied = text
            self._apply_again_at = monotonic() + APPLY_AGAIN_SECONDS * random.uniform(0.5, 1.5)

    async def _send(self, message: ToAgent) -> None:
        await self._websocket.send_text(encode_to_agent(message))
