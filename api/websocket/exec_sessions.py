"""Exec sessions: a client's WebSocket, and that of the keeper on the rank's node, with frames passed from one to the other.

A client gets `SessionEnded` with a code and a reason before its socket is closed, unless its command has ended by itself. Nothing is kept of what passes. One
frame at a time is in this process for each direction: a peer that takes nothing lets the other one wait, and the windows of `cluster.exec_frames` keep what is
on its way small.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from fastapi import APIRouter, WebSocket
from sqlalchemy.exc import SQLAlchemyError
from starlette.websockets import WebSocketDisconnect

from paceline.api.core import bus, identity
from paceline.api.core.context import Services
from paceline.api.core.identity import Caller
from paceline.api.core.origin import same_origin
from paceline.api.deps import bearer, find_caller, services_of
from paceline.api.errors import ProblemError
from paceline.api.services.jobs import exec_sessions
from paceline.api.websocket.exec_broker import ExecBroker, WaitingClient
from paceline.cluster.exec_frames import (
    ELSEWHERE,
    KEEPER_PATH,
    MOST_FRAME_BYTES,
    NO_IDENTITY,
    REFUSED,
    SESSION_OVER,
    Exited,
    SessionEnded,
    StartCommand,
    UnfitFrameError,
    decode_from_client,
    decode_from_keeper,
    decode_start,
    encode,
)
from paceline.db.errors import DatabaseError
from paceline.db.repositories import exec_sessions as rows
from paceline.db.repositories import jobs as job_rows

logger = logging.getLogger(__name__)
router = APIRouter()
START_SECONDS = 10.0
#: From the row to the keeper's connection: a process is started for it.
KEEPER_SECONDS = 30.0
LOOK_SECONDS = 0.8
REVOKED_SECONDS = 15.0


@router.websocket("/training/jobs/{job_id}/exec")
async def exec_beside_rank(websocket: WebSocket, job_id: str) -> None:
    services = services_of(websocket)
    caller = await find_caller(websocket) if same_origin(websocket) else None
    await websocket.accept()  # also for a refusal: browsers see a close code only on an accepted socket
    if caller is None:
        await _refuse(websocket, SessionEnded(code="not_authenticated", message="sign in, or send an API key"), NO_IDENTITY)
        return
    try:
        async with asyncio.timeout(START_SECONDS):
            start = decode_start(await websocket.receive_text())
        async with services.write(request=True) as session:
            row = await exec_sessions.open_session(session, job_id, start, caller, services.settings, services.now())
    except ProblemError as problem:
        await _refuse(websocket, SessionEnded(code=problem.code, message=problem.detail))
    except (UnfitFrameError, KeyError, TimeoutError) as error:
        text = f"the first frame must be a `start` message within {START_SECONDS:g} s: {error}"
        await _refuse(websocket, SessionEnded(code="invalid_request", message=str(error) if isinstance(error, UnfitFrameError) else text))
    except (DatabaseError, SQLAlchemyError) as error:
        logger.warning("an exec session is refused: %s", error)
        await _refuse(websocket, SessionEnded(code="busy", message="the coordinator's database is busy or away; try again"))
    except WebSocketDisconnect:
        return
    else:
        broker: ExecBroker = websocket.app.state.exec_broker
        with broker.client(row) as waiting:
            await ExecRelay(websocket, services, caller, job_id, start, waiting, row.opened_at.timestamp()).run()


async def _refuse(websocket: WebSocket, word: SessionEnded, code: int = REFUSED) -> None:
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):  # the peer may be gone already
        await websocket.send_text(encode(word))
        await websocket.close(code)


@router.websocket(KEEPER_PATH.removeprefix("/api/v1") + "{session_id}")
async def keeper_channel(websocket: WebSocket, session_id: str) -> None:
    """Keep a keeper's connection open for as long as the client's handler wants it."""
    services, secret = services_of(websocket), bearer(websocket)
    node = await services.node_identities.find(secret) if secret else None
    await websocket.accept()
    if node is None:
        await websocket.close(NO_IDENTITY, "this is no node's credential")
        return
    broker: ExecBroker = websocket.app.state.exec_broker
    waiting = broker.find(session_id, node.id)
    if waiting is None:
        await websocket.close(ELSEWHERE, "this replica of the coordinator has no client that waits for this session")
        return
    waiting.keeper.set_result(websocket)
    await waiting.over.wait()


@dataclass
class SessionResult:
    """How a session ended. `why`: in words; empty where the command has ended by itself."""

    exit_code: int | None = None
    why: str = ""


@dataclass
class ExecRelay:
    """One session from its row to its end."""

    client: WebSocket
    services: Services
    caller: Caller
    job_id: str
    start: StartCommand
    waiting: WaitingClient
    opened_at: float
    result: SessionResult = field(default_factory=SessionResult)
    _active_at: float = field(default_factory=monotonic)

    async def run(self) -> None:
        try:
            keeper = await self._find_keeper()
            if keeper is not None:
                await self._pass_on(keeper)
        finally:
            await self._note_end()
        with contextlib.suppress(RuntimeError, WebSocketDisconnect, TimeoutError):
            async with asyncio.timeout(self.services.settings.exec_idle_minutes * 60):
                await self._until_client_leaves()  # it closes once it has read everything: closed from here, a slow one would lose the end
            await self.client.close(SESSION_OVER)

    async def _find_keeper(self) -> WebSocket | None:
        """Wait for the keeper. Returns None where it does not come or the client leaves, which the client and the history are told."""
        leaving = asyncio.create_task(self._until_client_leaves())
        refusal = asyncio.create_task(self._until_refused())
        try:
            async with asyncio.timeout(KEEPER_SECONDS):
                await _first_of(leaving, refusal, self.waiting.keeper)
        except TimeoutError:
            await self._end(SessionEnded(code="node_away", message=self._no_keeper()))
            return None
        finally:
            for task in (leaving, refusal):
                task.cancel()
            await asyncio.gather(leaving, refusal, return_exceptions=True)
        if self.waiting.keeper.done():
            return self.waiting.keeper.result()
        if not leaving.cancelled():
            self.result.why = "its client left before it began"
        else:
            await self._end(SessionEnded(code="node_away", message=refusal.result()))
        return None

    def _no_keeper(self) -> str:
        text = f"the rank's node has not answered within {KEEPER_SECONDS:g} s: its agent is busy, away"
        if self.services.control.is_sqlite:
            return f"{text}, or cannot start a process; see the agent's log"
        return (
            f"{text}, or is always led to another replica of the coordinator than you are; connect to the replica that the agents connect to "
            "(--server), or have the load balancer spread connections evenly"
        )

    async def _until_client_leaves(self) -> None:
        """Wait for the end of the client's connection. What it sends before its command runs, or after, is out of turn."""
        while (await self.client.receive())["type"] != "websocket.disconnect":
            continue

    async def _until_refused(self) -> str:
        with self.services.bus.subscribe(bus.EXEC) as nudges:
            while True:
                await nudges.wait(LOOK_SECONDS)
                async with self.services.control.read() as session:
                    row = await rows.get(session, self.waiting.id)
                if row is None or row.refusal is not None:
                    return "the session was ended" if row is None else str(row.refusal)

    async def _pass_on(self, keeper: WebSocket) -> None:
        """Pass frames on in both directions until either end, a limit, or the loss of the right ends the session."""
        works = [self._from_keeper(keeper), self._from_client(keeper), self._until_limit(), self._until_not_allowed()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await keeper.send_text(encode(self.start))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            word = next((task.result() for task in done if task.result() is not None), None)
            if word is not None:
                await self._end(word)
        except (WebSocketDisconnect, RuntimeError):  # the keeper closed under our hands
            await self._end(_LOST)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            with contextlib.suppress(RuntimeError, WebSocketDisconnect):
                await keeper.close(SESSION_OVER)
            self.waiting.over.set()

    async def _from_keeper(self, keeper: WebSocket) -> SessionEnded | None:
        """Pass on what the keeper sends. Returns what the client is to be told besides."""
        while True:
            frame = await keeper.receive()
            if frame["type"] == "websocket.disconnect":
                return _LOST
            text, content = frame.get("text"), frame.get("bytes") or b""
            try:
                message = decode_from_keeper(text) if text is not None else None
            except UnfitFrameError as error:
                return SessionEnded(code="keeper_failed", message=f"the node's keeper sent {error}")
            if isinstance(message, Exited):  # so it is noted, though the client may leave before it is told
                self.result = SessionResult(message.exit_code, message.message)
            try:
                await (self.client.send_bytes(content) if text is None else self.client.send_text(text))
            except (WebSocketDisconnect, RuntimeError):  # closed under our hands
                self._note_client_left()
                return None
            if message is None:
                self._active_at = monotonic()
            if isinstance(message, Exited):
                return None
            if isinstance(message, SessionEnded):
                self.result.why = message.message
                return None

    async def _from_client(self, keeper: WebSocket) -> SessionEnded | None:
        while True:
            frame = await self.client.receive()
            if frame["type"] == "websocket.disconnect":
                self._note_client_left()
                return None
            text, content = frame.get("text"), frame.get("bytes") or b""
            try:
                if text is not None:
                    decode_from_client(text)
                elif len(content) > MOST_FRAME_BYTES:
                    raise UnfitFrameError(f"{len(content)} bytes in a frame; at most {MOST_FRAME_BYTES} are taken")
            except UnfitFrameError as error:
                return SessionEnded(code="invalid_request", message=str(error))
            try:
                await (keeper.send_bytes(content) if text is None else keeper.send_text(text))
            except (WebSocketDisconnect, RuntimeError):  # the keeper has closed: how it ended stands in what it sent before
                continue
            if text is None:
                self._active_at = monotonic()

    def _note_client_left(self) -> None:
        if self.result.exit_code is None:
            self.result.why = self.result.why or "its client left"

    async def _until_limit(self) -> SessionEnded:
        settings = self.services.settings
        idle_seconds, ends_at = settings.exec_idle_minutes * 60, monotonic() + settings.exec_hours * 3600
        while True:
            now = monotonic()
            if now >= ends_at:
                return SessionEnded(code="too_long", message=f"a session ends after {settings.exec_hours:g} h (PACELINE_EXEC_HOURS)")
            if now >= self._active_at + idle_seconds:
                text = f"no input and no output for {settings.exec_idle_minutes:g} min (PACELINE_EXEC_IDLE_MINUTES)"
                return SessionEnded(code="idle", message=text)
            await asyncio.sleep(min(ends_at, self._active_at + idle_seconds) - now)

    async def _until_not_allowed(self) -> SessionEnded:
        """Wait until the key or session that opened this would not open it again: it is revoked, or no longer has the right for this job."""
        again = identity.caller_of_key if self.caller.kind == "key" else identity.caller_of_session
        with self.services.bus.subscribe(bus.IDENTITY) as changes:
            while True:
                await changes.wait(REVOKED_SECONDS)
                async with self.services.control.read() as session:
                    caller = await again(session, self.caller.credential, self.services.now())
                    job = await job_rows.get(session, self.job_id)
                if caller is None or job is None:
                    return SessionEnded(code="forbidden", message="you are signed out, or the job is gone")
                try:
                    exec_sessions.require_right(caller, job, self.services.settings)
                except ProblemError as problem:
                    return SessionEnded(code="forbidden", message=problem.detail)

    async def _end(self, word: SessionEnded) -> None:
        self.result.why = word.message
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await self.client.send_text(encode(word))

    async def _note_end(self) -> None:
        """Note the end in the history, also while this process is being stopped. A database that is away leaves it to a later look."""

        async def note() -> None:
            async with self.services.write() as session:
                await exec_sessions.close_session(session, self.waiting.id, self.result.exit_code, self.result.why, self.services.now())

        try:
            await asyncio.shield(note())
        except (DatabaseError, SQLAlchemyError) as error:
            logger.warning("the end of exec session %s is not noted yet: %s", self.waiting.id, error)


async def _first_of(*futures: asyncio.Future[Any]) -> None:
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


_LOST = SessionEnded(code="node_away", message="the connection to the rank's node is lost; the command was ended there")
