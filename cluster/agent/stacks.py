"""The Python stacks of a rank's processes, by py-spy: a program of its own that reads another process's memory, and stops that for a moment."""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
import sys
from pathlib import Path

import msgspec

from paceline.cluster.agent.processes import command_of, python_processes_of
from paceline.cluster.stacks import MAIN_THREAD, ProcessStack, PythonFrame, StackSample, ThreadStack
from paceline.location import ROOT, is_ours
from paceline.training.reporting.failure_kinds import encodable
from paceline.training.reporting.users_code import is_users

DUMP_SECONDS = 5.0
#: What is kept of one rank: enough for a launcher with eight workers, and bounded for a rank that starts threads without end.
MOST_PROCESSES = 10
MOST_THREADS = 16
MOST_FRAMES = 48
MOST_CHARACTERS = 160
MOST_BYTES = 64 << 10
#: How many are looked at at the same time.
AT_ONCE = 4

_PACKAGES = re.compile(r".*/(?:site|dist)-packages/")
_STANDARD_LIBRARY = re.compile(r".*/lib(?:64)?/python3\.\d+/")
#: What is below the user's program in a forked rank; the last is of spawners of before December 2026, which outlive the upgrade of their agent.
_STARTERS = ("paceline/training/warm_start.py", "paceline/cluster/agent/spawner/rank_process.py", "paceline/cluster/agent/rank_process.py")
_SPAWNER = "paceline.cluster.agent.spawner"
REFUSED = (
    "this node does not let py-spy look into its ranks (ptrace is refused): in a container, add the capability SYS_PTRACE "
    "(docker run --cap-add SYS_PTRACE); elsewhere set kernel.yama.ptrace_scope to 0, or run the agent as root"
)
TOO_LONG = "its stack is too long to be shown"
MISSING = "py-spy is not installed on this node: install it in the agent's environment (pip install py-spy)"


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int


class _Thread(msgspec.Struct):
    thread_name: str | None = None
    os_thread_id: int | None = None
    pid: int = 0
    frames: list[_Frame] = []


_decoder = msgspec.json.Decoder(list[_Thread])


class StackReader:
    """Reads stacks with `program`, py-spy; None: it is looked for beside the interpreter, then on the PATH."""

    def __init__(self, program: str | None = None, *, seconds: float = DUMP_SECONDS) -> None:
        self._program = program or shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
        self._seconds = seconds
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def read(self, empty: StackSample, leader: int, program: str = "") -> StackSample:
        """Read the stacks of the rank with pid `leader`. Returns `empty` with its processes, or with the reason why there are none;
        never raises. `program`: the program of a process that was forked from the spawner, and has the spawner's command line."""
        answer = empty
        if self._program is None:
            return msgspec.structs.replace(answer, error=MISSING)
        parts = await asyncio.to_thread(python_processes_of, leader)
        if not parts:
            return msgspec.structs.replace(answer, error="no Python program runs in it")
        processes = await asyncio.gather(*(self._dump(self._program, pid) for pid in list(parts)[:MOST_PROCESSES]))
        named = [_named(msgspec.structs.replace(each, part=parts[each.pid]), program) for each in processes]
        return bounded(msgspec.structs.replace(answer, processes=tuple(named)))

    async def _dump(self, program: str, pid: int) -> ProcessStack:
        async with self._turns:
            command = command_of(pid)[:MOST_CHARACTERS]
            try:
                process = await asyncio.create_subprocess_exec(
                    *(program, "dump", "--json", "--full-filenames", "--pid", str(pid)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
            except OSError as error:
                return ProcessStack(pid, command, error=f"{program} cannot be run: {error.strerror}")
            try:
                async with asyncio.timeout(self._seconds):
                    output, complaint = await process.communicate()
            except TimeoutError:
                return ProcessStack(pid, command, error=f"py-spy gave no answer within {self._seconds:g} s")
            finally:
                if process.returncode is None:
                    with contextlib.suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        if process.returncode != 0:
            return ProcessStack(pid, command, error=why(complaint.decode("utf-8", "replace")))
        return ProcessStack(pid, command, *_read(pid, output))


def _named(process: ProcessStack, program: str) -> ProcessStack:
    return msgspec.structs.replace(process, command=program[:MOST_CHARACTERS]) if _SPAWNER in process.command else process


def bounded(stacks: StackSample) -> StackSample:
    """The stacks within MOST_BYTES as JSON: where they are more, the main threads, and at last that of the rank itself alone."""
    mains = tuple(msgspec.structs.replace(process, threads=process.threads[:1]) for process in stacks.processes)
    smaller = (msgspec.structs.replace(stacks, processes=processes) for processes in (mains, mains[:1]))
    return next(
        (each for each in (stacks, *smaller) if len(msgspec.json.encode(each)) <= MOST_BYTES), StackSample(id=stacks.id, error=TOO_LONG)
    )


def _read(pid: int, output: bytes) -> tuple[tuple[ThreadStack, ...], str]:
    try:
        return parse(output, pid), ""
    except msgspec.DecodeError as error:
        return (), f"what py-spy said cannot be read: {error}"


def why(complaint: str) -> str:
    """The reason that py-spy gives, with the way out where ptrace is refused."""
    if "permission denied" in complaint.lower() or "operation not permitted" in complaint.lower():
        return REFUSED
    first = next((line for line in complaint.splitlines() if line.strip()), "py-spy failed without a word")
    return encodable(first.removeprefix("Error: ")[:MOST_CHARACTERS])


def parse(output: bytes, pid: int) -> tuple[ThreadStack, ...]:
    """The threads in what `py-spy dump --json` printed of one process, the main thread first. Raises msgspec.DecodeError."""
    found = [(_name(thread, pid), thread.frames) for thread in _decoder.decode(output) if thread.frames]
    found.sort(key=lambda thread: thread[0] != MAIN_THREAD)
    return tuple(ThreadStack(encodable(name[:MOST_CHARACTERS]), _innermost(frames)) for name, frames in found[:MOST_THREADS])


def _name(thread: _Thread, pid: int) -> str:
    return MAIN_THREAD if thread.os_thread_id == pid else thread.thread_name or "a thread without a name"


def _innermost(frames: list[_Frame]) -> tuple[PythonFrame, ...]:
    """The stack without the frames that started the rank: the innermost half of the kept frames, and the outermost."""
    half = MOST_FRAMES // 2
    start = next((index for index, frame in enumerate(frames) if index and short(frame.filename) in _STARTERS), len(frames))
    frames = frames[:start]
    kept = frames if len(frames) <= MOST_FRAMES else [*frames[:half], *frames[-half:]]
    return tuple(
        PythonFrame(
            encodable(_last_name(frame.name)[:MOST_CHARACTERS]),
            encodable(short(frame.filename)[-MOST_CHARACTERS:]),
            frame.line,
            is_users(frame.filename),
        )
        for frame in kept
    )


def _last_name(qualified: str) -> str:
    """The name of a function without the functions that it is defined in."""
    return qualified.rpartition("<locals>.")[2]


def short(file: str) -> str:
    """A file's path from the package on; the whole path of a user's file."""
    if is_ours(file):
        return file.removeprefix(f"{ROOT}/")
    for prefix in (_PACKAGES, _STANDARD_LIBRARY):
        if found := prefix.match(file):
            return file[found.end() :]
    return file
