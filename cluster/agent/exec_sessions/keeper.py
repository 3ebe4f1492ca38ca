"""The keeper of one exec session: `python -m paceline.cluster.agent.exec_sessions.keeper`, a process beside the agent, with its order on standard input.

It connects to the coordinator by itself, so that what a command prints passes neither the agent nor its channel, and runs the command as a child.
It ends the command, with all that it has started, when the client, the coordinator or the agent goes away; should the keeper itself be killed, the kernel
kills the command, and the agent what that had started.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sys
from pathlib import Path

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from paceline.cluster.agent.account import find_account
from paceline.cluster.agent.errors import AgentError
from paceline.cluster.agent.exec_sessions import program
from paceline.cluster.agent.exec_sessions.order import KeeperOrder, decode_end, decode_order
from paceline.cluster.agent.exec_sessions.program import CannotStartError, CommandLimits, Program
from paceline.cluster.agent.memory_groups import MemoryGroups
from paceline.cluster.agent.processes import PR_SET_CHILD_SUBREAPER, prctl
from paceline.cluster.exec_frames import (
    ELSEWHERE,
    KEEPER_PATH,
    MOST_FRAME_BYTES,
    MOST_TEXT_BYTES,
    WINDOW_BYTES,
    EndOfInput,
    Exited,
    FromClient,
    FromKeeper,
    SendSignal,
    SessionEnded,
    StartCommand,
    Started,
    Taken,
    TerminalSize,
    UnfitFrameError,
    decode_from_client,
    decode_start,
    encode,
)
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.send_window import SendWindow
from paceline.tls.trust import context_of

#: Below that of every rank: a command takes the processor that ranks leave.
NICENESS = 10
MOST_ORDER_BYTES = 2 << 20
CONNECT_SECONDS, PING_SECONDS = 10.0, 20.0
#: For the replica of the coordinator that has the client, where a load balancer leads to any of them.
SEARCH_SECONDS = 15.0
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.05, 0.5
REAP_SECONDS = 1.0
SHELLS = ("/bin/bash", "/bin/sh")

log = logging.getLogger(__name__)


class KeptSession:
    """One command and its connection."""

    def __init__(self, order: KeeperOrder, connection: ClientConnection, start: StartCommand) -> None:
        self._order, self._connection, self._start = order, connection, start
        self._groups = MemoryGroups(Path(order.groups), order.memory_limit) if order.groups and order.memory_limit else None
        self._group: Path | None = None
        self._window = SendWindow(WINDOW_BYTES)
        self._input: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._unread = 0  # bytes of input that the command has not taken

    async def run(self, agent: asyncio.StreamReader) -> None:
        """Run the command to its end, or to that of the client, the coordinator or the agent."""
        try:
            running = self._begin()
        except CannotStartError as error:
            await self._send(Exited(exit_code=error.exit_code, message=str(error)))
            return
        words = tuple(self._command())
        await self._send(Started(node=self._order.node, rank=self._order.rank, generation=self._order.generation, command=words))
        finished = asyncio.create_task(self._follow(running))
        listening = asyncio.create_task(self._listen(running))
        ordered = asyncio.create_task(_agents_word(agent, self._order.node))
        ends: list[asyncio.Task[None] | asyncio.Task[SessionEnded]] = [finished, listening, ordered]
        others = [asyncio.create_task(self._feed(running)), asyncio.create_task(_keep_reaping(running))]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if finished.done():  # the coordinator closes: only it knows when all of the output has passed
                await asyncio.wait([listening, ordered], return_when=asyncio.FIRST_COMPLETED)
            else:
                finished.cancel()  # the end that it would tell of is ours
                if ordered.done():
                    await self._send(ordered.result())
                await running.hang_up()
        finally:
            for task in (*ends, *others):
                task.cancel()
            await asyncio.gather(*ends, *others, return_exceptions=True)
            running.kill_rest()

    def end_group(self) -> None:
        """End whatever is left in the command's control group, and the group."""
        if self._groups is not None and self._group is not None:
            self._groups.end(self._group)

    def _command(self) -> list[str]:
        return list(self._start.command) or [shell_of(self._order.environment)]

    def _begin(self) -> Program:
        order, start = self._order, self._start
        account = None if order.account is None else find_account(order.account)
        self._group = None if self._groups is None else self._groups.create(f"exec-{order.session_id}")
        environment = order.environment | ({"TERM": start.term} if start.tty and start.term else {})
        confines = CommandLimits(umask=order.umask, account=account, group=self._group)
        size = (start.rows, start.columns) if start.tty else None
        return program.start(self._command(), environment, order.directory, confines, size)

    async def _follow(self, running: Program) -> None:
        """Send what the command prints, then how it ended. What it leaves running is killed: it would hold the output open."""
        pumps = [asyncio.create_task(self._pump(running, stream)) for stream in running.outputs]
        try:
            code = await running.wait()
            running.kill_rest()
            await asyncio.gather(*pumps)
        finally:
            for pump in pumps:
                pump.cancel()
        await self._send(Exited(exit_code=code))

    async def _pump(self, running: Program, stream: int) -> None:
        while True:
            room = await self._window.room(MOST_FRAME_BYTES)
            piece = await running.outputs[stream].read(room)
            if not piece:
                return
            self._window.spend(len(piece))
            await self._connection.send(bytes([stream]) + piece)

    async def _listen(self, running: Program) -> None:
        """Handle what the client sends, until the connection ends."""
        try:
            async for frame in self._connection:
                if isinstance(frame, bytes):
                    self._unread += len(frame)
                    if self._unread > 2 * WINDOW_BYTES:
                        raise UnfitFrameError(f"{self._unread} bytes of input were sent; at most {WINDOW_BYTES} may be on their way")
                    self._input.put_nowait(frame)
                else:
                    self._handle(decode_from_client(frame), running)
        except (ConnectionClosed, UnfitFrameError) as error:
            log.info("session %s ends: %s", self._order.session_id, error)

    def _handle(self, message: FromClient, running: Program) -> None:
        match message:
            case Taken(bytes=taken):
                self._window.grow(taken)
            case TerminalSize(rows=rows, columns=columns):
                running.resize(rows, columns)
            case SendSignal(name=name):
                running.signal(name)
            case EndOfInput():
                self._input.put_nowait(None)

    async def _feed(self, running: Program) -> None:
        while (piece := await self._input.get()) is not None:
            await running.feed(piece)
            self._unread -= len(piece)
            await self._send(Taken(bytes=len(piece)))
        await running.end_input()

    async def _send(self, message: FromKeeper) -> None:
        try:
            await self._connection.send(encode(message))
        except ConnectionClosed:
            log.info("session %s: the client has gone", self._order.session_id)


def shell_of(environment: dict[str, str]) -> str:
    """The shell of a session without a command: that of its user, if this node has it."""
    wanted = environment.get("SHELL")
    return next((shell for shell in (wanted, *SHELLS) if shell and shutil.which(shell)), SHELLS[-1])


async def _agents_word(agent: asyncio.StreamReader, node: str) -> SessionEnded:
    """Wait until the agent ends the session, or itself."""
    line = await agent.readline()
    if not line.endswith(b"\n"):
        return SessionEnded(code="agent_ended", message=f"the agent of {node} has ended or was started anew")
    word = decode_end(line)
    return SessionEnded(code=word.code, message=word.message)


async def _keep_reaping(running: Program) -> None:
    """Reap what the command has left behind, every second."""
    while True:
        await asyncio.sleep(REAP_SECONDS)
        program.reap(running.pid)


async def find_client(order: KeeperOrder) -> tuple[ClientConnection, StartCommand]:
    """Connect to the coordinator's replica that has the client. Raises OSError, TimeoutError, ConnectionClosed or InvalidHandshake."""
    backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SEARCH_SECONDS
    tls = context_of(order.authority) if order.authority else None
    while True:
        connection = await connect(
            order.server + KEEPER_PATH + order.session_id,
            ssl=tls,
            additional_headers={"Authorization": f"Bearer {order.credential}"},
            open_timeout=CONNECT_SECONDS,
            ping_interval=PING_SECONDS,
            ping_timeout=PING_SECONDS,
            close_timeout=1.0,
            max_size=MOST_TEXT_BYTES,
            compression=None,
        )
        try:
            return connection, decode_start(await connection.recv())
        except ConnectionClosed as closed:
            if closed.rcvd is None or closed.rcvd.code != ELSEWHERE or loop.time() > deadline:
                raise
        await backoff.pause()


async def keep(order: KeeperOrder, agent: asyncio.StreamReader) -> None:
    connection, start = await find_client(order)
    try:
        if order.refusal:
            await connection.send(encode(SessionEnded(code="refused", message=order.refusal)))
        else:
            session = KeptSession(order, connection, start)
            try:
                await session.run(agent)
            finally:
                session.end_group()
    except (AgentError, OSError) as error:
        await connection.send(encode(SessionEnded(code="cannot_start", message=f"{order.node} cannot run it: {error}")))
    finally:
        await connection.close()


async def _main() -> int:
    loop = asyncio.get_running_loop()
    agent = asyncio.StreamReader(limit=MOST_ORDER_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(agent), sys.stdin)
    order = decode_order(await agent.readline())
    try:
        await keep(order, agent)
    except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake, UnfitFrameError) as error:
        log.warning("exec session %s: %s", order.session_id, str(error) or type(error).__name__)
        return 1
    except msgspec.DecodeError as error:
        log.error("exec session %s: the agent's word cannot be read: %s", order.session_id, error)
        return 1
    return 0


def main() -> int:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    os.nice(NICENESS)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    return asyncio.run(_main())


if __name__ == "__main__":
    raise SystemExit(main())
