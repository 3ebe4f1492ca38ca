"""The keeper as a real process, against a coordinator that is the test: what the command gets, and what is left of it."""

from __future__ import annotations

import asyncio
import os
import pwd
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from websockets.asyncio.server import ServerConnection, serve

from paceline.cluster.agent.exec_sessions.order import EndKeeper, KeeperOrder, encode_for_keeper
from paceline.cluster.exec_frames import (
    ELSEWHERE,
    WINDOW_BYTES,
    EndOfInput,
    Exited,
    FromKeeper,
    SendSignal,
    SessionEnded,
    StartCommand,
    Started,
    Taken,
    TerminalSize,
    decode_from_keeper,
    encode,
)
from tests.e2e.stack import ROOT
from tests.ports import free_port
from tests.processes import is_pid_alive
from tests.waiting import until

pytestmark = pytest.mark.timeout(120)
SECONDS = 40.0
ENVIRONMENT = {"PATH": os.defpath, "SETTING": "42"}


class Keeper:
    """A keeper that runs, and the coordinator's end of its connection."""

    def __init__(self, process: asyncio.subprocess.Process, connection: ServerConnection) -> None:
        self.process, self.connection = process, connection
        self.output = {1: b"", 2: b""}

    async def say(self, message: StartCommand | TerminalSize | SendSignal | Taken | EndOfInput) -> None:
        await self.connection.send(encode(message))

    async def next(self, *, take: bool = True) -> FromKeeper:
        """The next message that is not Taken; output on the way to it is kept, and taken unless `take` is off."""
        while True:
            frame = await asyncio.wait_for(self.connection.recv(), SECONDS)
            if isinstance(frame, bytes):
                self.output[frame[0]] += frame[1:]
                if take:
                    await self.say(Taken(bytes=len(frame) - 1))
            elif not isinstance(message := decode_from_keeper(frame), Taken):
                return message

    async def expect_output(self, text: bytes) -> None:
        while text not in self.output[1]:
            frame = await asyncio.wait_for(self.connection.recv(), SECONDS)
            if isinstance(frame, bytes):
                self.output[frame[0]] += frame[1:]

    async def ended(self) -> int:
        """The keeper's own exit code, once the coordinator has closed the connection."""
        await self.connection.close()
        return await asyncio.wait_for(self.process.wait(), SECONDS)


@asynccontextmanager
async def keeper(tmp_path: Path, start: StartCommand, refusals: int = 0, **order: object) -> AsyncIterator[Keeper]:
    """A keeper whose coordinator says `refusals` times that it has no such client."""
    connections: asyncio.Queue[ServerConnection] = asyncio.Queue()
    left = refusals

    async def accept(connection: ServerConnection) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            await connection.close(ELSEWHERE)
            return
        assert connection.request is not None
        assert connection.request.path == "/api/v1/agents/exec/s1"
        assert connection.request.headers["Authorization"] == "Bearer secret"
        connections.put_nowait(connection)
        await connection.wait_closed()

    port = free_port()
    known = {"session_id": "s1", "server": f"ws://127.0.0.1:{port}", "credential": "secret", "node": "a", "rank": 0, "generation": 1}
    known |= {"environment": ENVIRONMENT, "directory": str(tmp_path)} | order
    async with serve(accept, "127.0.0.1", port):
        module = "paceline.cluster.agent.exec_sessions.keeper"
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", module, stdin=asyncio.subprocess.PIPE, cwd=ROOT)
        try:
            assert process.stdin is not None
            process.stdin.write(encode_for_keeper(KeeperOrder(**known)))  # type: ignore[arg-type]
            connection = await asyncio.wait_for(connections.get(), SECONDS)
            await connection.send(encode(start))
            yield Keeper(process, connection)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def shell(script: str, *, tty: bool = False) -> StartCommand:
    return StartCommand(command=("sh", "-c", script), tty=tty, rows=33, columns=99, term="dumb")


async def test_a_command_has_the_orders_variables_and_directory_and_two_streams(tmp_path: Path) -> None:
    async with keeper(tmp_path, shell("echo $SETTING $(pwd); echo wrong >&2; umask; exit 4"), umask=0o027) as kept:
        assert await kept.next() == Started(node="a", rank=0, generation=1, command=("sh", "-c", kept_script(4)))
        assert await kept.next() == Exited(exit_code=4)
        assert kept.output == {1: f"42 {tmp_path}\n0027\n".encode(), 2: b"wrong\n"}
        assert await kept.ended() == 0


def kept_script(code: int) -> str:
    return f"echo $SETTING $(pwd); echo wrong >&2; umask; exit {code}"


async def test_the_control_group_of_a_command_ends_with_it(tmp_path: Path) -> None:
    group = tmp_path / "paceline-exec-s1"
    group.mkdir()
    (group / "memory.events").write_text("oom_kill 0\n")
    async with keeper(tmp_path, shell("true"), groups=str(tmp_path), memory_limit=1 << 30) as kept:
        assert isinstance(await kept.next(), Started)
        assert await kept.next() == Exited(exit_code=0)
        assert await kept.ended() == 0
    assert (group / "cgroup.procs").read_text() == "0"
    assert (group / "cgroup.kill").read_text() == "1"


async def test_a_replica_without_the_client_is_left_for_another(tmp_path: Path) -> None:
    async with keeper(tmp_path, shell("true"), refusals=3) as kept:
        assert isinstance(await kept.next(), Started)
        assert await kept.next() == Exited(exit_code=0)


async def test_a_refusal_is_passed_on_and_nothing_runs(tmp_path: Path) -> None:
    async with keeper(tmp_path, shell("touch made"), refusal="rank 0 does not run here") as kept:
        assert await kept.next() == SessionEnded(code="refused", message="rank 0 does not run here")
        assert await kept.ended() == 0
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("command", "code", "why"),
    [("no-such-program", 127, "there is no such program on this node"), ("/etc/passwd", 126, "Permission denied")],
)
async def test_a_program_that_cannot_be_run_has_a_shells_exit_code(tmp_path: Path, command: str, code: int, why: str) -> None:
    async with keeper(tmp_path, StartCommand(command=(command,))) as kept:
        word = await kept.next()
        assert isinstance(word, Exited)
        assert (word.exit_code, why in word.message) == (code, True)


async def test_a_directory_that_is_gone_is_named(tmp_path: Path) -> None:
    async with keeper(tmp_path, shell("true"), directory=str(tmp_path / "gone")) as kept:
        await kept.next()
        assert await kept.next() == Exited(exit_code=126)
        assert b"gone beside the rank: No such file or directory" in kept.output[2]


async def test_output_stops_at_the_window_while_signals_pass(tmp_path: Path) -> None:
    async with keeper(tmp_path, StartCommand(command=("yes",))) as kept:
        assert isinstance(await kept.next(take=False), Started)
        while len(kept.output[1]) < WINDOW_BYTES:
            frame = await asyncio.wait_for(kept.connection.recv(), SECONDS)
            assert isinstance(frame, bytes)
            kept.output[1] += frame[1:]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(kept.connection.recv(), 1.0)
        assert len(kept.output[1]) == WINDOW_BYTES
        await kept.say(SendSignal(name="INT"))
        await kept.say(Taken(bytes=WINDOW_BYTES))
        assert await kept.next() == Exited(exit_code=130)


async def test_input_is_acknowledged_as_the_command_takes_it(tmp_path: Path) -> None:
    async with keeper(tmp_path, StartCommand(command=("wc", "-c"))) as kept:
        assert isinstance(await kept.next(), Started)
        for _ in range(4):
            await kept.connection.send(b"x" * 1000)
        await kept.say(EndOfInput())
        assert await kept.next() == Exited(exit_code=0)
        assert kept.output[1].strip() == b"4000"


async def test_more_input_than_the_window_ends_the_session(tmp_path: Path) -> None:
    async with keeper(tmp_path, StartCommand(command=("sleep", "600"))) as kept:
        assert isinstance(await kept.next(), Started)
        for _ in range(2 * WINDOW_BYTES // 32_768 + 3):
            await kept.connection.send(b"x" * 32_768)
        assert await kept.ended() == 0


async def test_a_terminal_has_a_size_and_an_end_of_input(tmp_path: Path) -> None:
    script = "stty size; tty; trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.1; done"
    async with keeper(tmp_path, shell(script, tty=True)) as kept:
        assert isinstance(await kept.next(), Started)
        await kept.expect_output(b"ready")
        assert kept.output[1].startswith(b"33 99\r\n/dev/pts/")
        await kept.say(TerminalSize(rows=44, columns=111))
        assert await kept.next() == Exited(exit_code=0)
        assert b"44 111" in kept.output[1]
    async with keeper(tmp_path, shell("cat", tty=True)) as kept:
        assert isinstance(await kept.next(), Started)
        await kept.say(EndOfInput())
        assert await kept.next() == Exited(exit_code=0)


async def test_the_last_output_before_a_terminals_end_is_not_lost(tmp_path: Path) -> None:
    async with keeper(tmp_path, shell("seq 20000", tty=True)) as kept:
        assert isinstance(await kept.next(), Started)
        assert await kept.next() == Exited(exit_code=0)
        assert kept.output[1].split()[-1] == b"20000"


async def test_what_the_command_leaves_running_is_killed_with_it(tmp_path: Path) -> None:
    async with keeper(tmp_path, shell("setsid sleep 600 & sleep 600 & echo $!; exit 0")) as kept:
        assert isinstance(await kept.next(), Started)
        assert await kept.next() == Exited(exit_code=0)
        left = int(kept.output[1])
        assert await kept.ended() == 0
        await until(lambda: not is_pid_alive(left), "the end of what was left", seconds=SECONDS)


@pytest.mark.parametrize("how", ["the client leaves", "the agent says so", "the agent is gone"])
async def test_a_session_that_ends_takes_its_processes_along(tmp_path: Path, how: str) -> None:
    script = "trap '' HUP TERM; setsid sleep 600 & sleep 600 & echo $$; sleep 600; sleep 600"
    async with keeper(tmp_path, shell(script)) as kept:
        assert isinstance(await kept.next(), Started)
        await kept.expect_output(b"\n")
        family = psutil.Process(kept.process.pid).children(recursive=True)
        assert len(family) >= 3
        assert kept.process.stdin is not None
        match how:
            case "the client leaves":
                await kept.connection.close()
            case "the agent says so":
                kept.process.stdin.write(encode_for_keeper(EndKeeper(code="rank_ended", message="rank 0 has ended")))
                assert await kept.next() == SessionEnded(code="rank_ended", message="rank 0 has ended")
            case "the agent is gone":
                kept.process.stdin.close()
                assert await kept.next() == SessionEnded(code="agent_ended", message="the agent of a has ended or was started anew")
        assert await kept.ended() == 0
        assert psutil.wait_procs(family, timeout=SECONDS)[1] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process as another user")
@pytest.mark.parametrize("tty", [False, True])
async def test_a_command_runs_as_the_ranks_user_without_any_right_of_the_agents(tmp_path: Path, tty: bool) -> None:
    script = 'id -u; cat /etc/shadow >/dev/null 2>&1 || echo closed; test -w "$(tty)" && echo own terminal; cat /proc/self/oom_score_adj'
    async with keeper(tmp_path, shell(script, tty=tty), directory="/", account="nobody") as kept:
        assert isinstance(await kept.next(), Started)
        assert await kept.next() == Exited(exit_code=0)
        lines = kept.output[1].split(b"\n")
        terminal = [b"own terminal"] if tty else []
        expected = [str(pwd.getpwnam("nobody").pw_uid).encode(), b"closed", *terminal, b"1000", b""]
        assert [line.strip() for line in lines] == expected
