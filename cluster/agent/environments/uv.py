"""Builds the virtual environment of a job's requirements with uv, in three commands: resolve, make the environment, install.

The environment has a Python of its own, and behind its own packages those of the agent, torch among them, with their programs (`node_package`). uv does
not look at the packages of another environment, so it is told of them: the node's torch is the only one there is (`stand_in_wheel`), the node's other versions are
preferred, and of what was resolved only the rest is installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import re
import signal
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.environments.node_package import FILE_NAME, node_package
from paceline.cluster.agent.environments.node_python import TORCH, NodePython, stand_in_wheel
from paceline.extras import pip_install
from paceline.monitoring.files import read_file

#: One command of uv: building a package from source may take long.
BUILD_SECONDS = 1800.0
END_SECONDS = 5.0
MOST_RESOLVED_BYTES = 4 << 20
#: Lines of uv's message that go into the reason of a job's end; all of them are in its log.
MOST_REASON_LINES = 12
#: What uv says where a server or the way to it failed; a server that refuses (401, 403, 404) will do so again.
_UNREACHABLE = re.compile(
    r"error sending request|tcp connect error|dns error|timed out|HTTP status server error|connection (reset|closed)|error decoding response body",
    re.IGNORECASE,
)
_DECORATION = re.compile(r"^[\s×╰─▶│├]+")

Say = Callable[[str], None]


class BuildFailedError(Exception):
    """The environment cannot be built. The message says which package, and what uv says of it."""


class IndexUnreachableError(BuildFailedError):
    """The network or an index of packages is at fault, so that another try may help."""


def has_uv() -> bool:
    """Whether packages can be installed on this node."""
    return _uv() is not None


def _uv() -> str | None:
    places = [os.path.join(folder, "uv") for folder in (os.path.dirname(sys.executable), sysconfig.get_path("scripts"))]
    places += _installed_programs()
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _installed_programs() -> list[str]:
    """The programs of the package uv, wherever it can be imported from: an environment that borrows another's packages has none beside its Python."""
    try:
        files = importlib.metadata.files("uv") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [os.path.normpath(file.locate()) for file in files if file.name == "uv" and file.parent.name == "bin"]


def find_uv() -> str:
    """The uv that was installed with the agent: beside its interpreter, or with the packages that it borrows. Raises BuildFailedError."""
    if (uv := _uv()) is not None:
        return uv
    raise BuildFailedError(f"there is no uv beside {sys.executable} on this node, which installs packages: {pip_install('worker')}")


class UvBuild:
    """One build. `folder` is empty; afterwards `folder/venv` is the environment. `lock`: a descriptor that every process of the build holds."""

    def __init__(
        self, python: NodePython, folder: Path, variables: Mapping[str, str], account: Account | None, lock: int, say: Say
    ) -> None:
        self._python, self._folder, self._variables, self._account = python, folder, variables, account
        self._lock, self._say, self._uv = lock, say, find_uv()

    @property
    def interpreter(self) -> Path:
        return self._folder / "venv" / "bin" / "python"

    async def run(self, requirements: Sequence[str], *, own_torch: bool) -> list[str]:
        """Build. Returns the requirements that were installed, each with its version. Raises BuildFailedError; when cancelled, uv is ended first."""
        try:
            return await self._run(requirements, own_torch=own_torch)
        except BuildFailedError as failure:
            lines = lines_behind(str(failure), requirements)
            raise type(failure)(f"{failure} (of environment.requirements: {', '.join(lines)})" if lines else str(failure)) from failure

    async def _run(self, requirements: Sequence[str], *, own_torch: bool) -> list[str]:
        resolved = await self._resolve(requirements, own_torch=own_torch)
        await self._uv_command("venv", "--no-project", "--quiet", "--python", self._python.executable, str(self._folder / "venv"))
        missing = resolved if own_torch else [line for line in resolved if not self._is_here(line)]
        if not own_torch:
            node = self._write_node_package(missing)
            await self._install("--quiet", "--offline", "--no-index", str(node))
        if missing:  # in a command of its own: of programs with one name, that of the job's package stays
            options = [line for line in requirements if line.startswith("--")]
            await self._install("-r", str(self._write("install.txt", [*options, *missing])))
        return missing

    async def _install(self, *words: str) -> None:
        await self._uv_command("pip", "install", "--python", str(self.interpreter), "--no-deps", *words)

    async def _resolve(self, requirements: Sequence[str], *, own_torch: bool) -> list[str]:
        wanted = self._write("requirements.txt", requirements)
        resolved = self._folder / "resolved.txt"
        command = ["pip", "compile", "--python", self._python.executable, "--no-header", "--no-annotate", "--output-file", str(resolved)]
        if not own_torch:
            if self._python.torch is None:
                raise BuildFailedError("this node has no torch")
            stand_in = self._write_bytes(*stand_in_wheel(self._python))
            constraints = self._write("constraints.txt", [f"{TORCH} @ {stand_in.as_uri()}", *self._python.constraints])
            self._write(resolved.name, [f"{name}=={version}" for name, version in self._python.packages.items() if name != TORCH])
            command += ["--constraint", str(constraints)]
        await self._uv_command(*command, str(wanted), quiet_output=True)
        owner = os.geteuid() if self._account is None else self._account.uid
        lines = read_file(resolved, MOST_RESOLVED_BYTES, owner=owner).decode().splitlines()
        return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("#", "-"))]

    def _is_here(self, line: str) -> bool:
        """Whether the agent's packages, which the environment sees, have this one already."""
        requirement = _parsed(line)
        if requirement is None:
            return False
        name, pins = canonicalize_name(requirement.name), list(requirement.specifier)
        if name == TORCH:
            return True
        return requirement.url is None and len(pins) == 1 and pins[0].version == self._python.packages.get(name)

    def _write_node_package(self, installed: Sequence[str]) -> Path:
        packages = {canonicalize_name(requirement.name) for requirement in map(_parsed, installed) if requirement is not None}
        return self._write_bytes(FILE_NAME, node_package(self._python.sites, self._python.commands, without=packages))

    def _write(self, name: str, lines: Sequence[str]) -> Path:
        return self._write_bytes(name, "".join(f"{line}\n" for line in lines).encode())

    def _write_bytes(self, name: str, content: bytes) -> Path:
        """Write a file anew. The user of the build owns the folder, and may have left a link in its place."""
        path = self._folder / name
        path.unlink(missing_ok=True)
        with open(path, "xb", opener=lambda at, flags: os.open(at, flags | os.O_NOFOLLOW, 0o644)) as file:
            file.write(content)
            os.fchmod(file.fileno(), 0o644)
            if self._account is not None:
                os.fchown(file.fileno(), self._account.uid, self._account.gid)
        return path

    async def _uv_command(self, *words: str, quiet_output: bool = False) -> None:
        account = self._account
        process = await asyncio.create_subprocess_exec(
            self._uv,
            *words,
            cwd=self._folder,
            env=dict(self._variables) | {"NO_COLOR": "1", "UV_PYTHON_DOWNLOADS": "never", "VIRTUAL_ENV": ""},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL if quiet_output else asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE if quiet_output else asyncio.subprocess.STDOUT,
            start_new_session=True,
            pass_fds=(self._lock,),
            umask=0o022,
            **({} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}),  # type: ignore[arg-type]
        )
        stream = process.stderr if quiet_output else process.stdout
        assert stream is not None
        try:
            async with asyncio.timeout(BUILD_SECONDS):
                said = await self._listen(stream)
                code = await process.wait()
        except TimeoutError:
            raise BuildFailedError(
                f"uv {words[0]} did not end within {BUILD_SECONDS:g} s; install fewer packages, or ones with wheels"
            ) from None
        finally:
            await _end(process)
        if code != 0:
            failure = IndexUnreachableError if any(_UNREACHABLE.search(line) for line in said) else BuildFailedError
            raise failure(_reason(said) or f"uv {' '.join(words[:2])} ended with code {code}")

    async def _listen(self, stream: asyncio.StreamReader) -> list[str]:
        said = []
        while line := await _line(stream):
            text = line.decode(errors="replace").rstrip()
            if text:
                said.append(text)
                self._say(text)
        return said


def lines_behind(message: str, requirements: Sequence[str]) -> list[str]:
    """The requirements whose packages uv's message names, in their order; of many the first."""
    names = [(line, canonicalize_name(requirement.name)) for line in requirements if (requirement := _parsed(line)) is not None]
    found = [line for line, name in names if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", message, re.IGNORECASE)]
    return found[:MOST_REASON_LINES]


def _parsed(line: str) -> Requirement | None:
    """A line of resolved requirements; None where uv knows a form that we do not."""
    try:
        return Requirement(line)
    except InvalidRequirement:
        return None


async def _line(stream: asyncio.StreamReader) -> bytes:
    """The next line; a piece of one that is too long; nothing at the end."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        return end.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(error.consumed)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End whatever is left of a command: uv, and the compilers and build backends that it has started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await asyncio.shield(process.wait())
                return


def _reason(said: Sequence[str]) -> str:
    """uv's message from its first line that tells of an error, as one line."""
    start = next(
        (number for number, line in enumerate(said) if line.lstrip().startswith(("×", "error", "Error"))),
        max(0, len(said) - MOST_REASON_LINES),
    )
    lines = [_DECORATION.sub("", line) for line in said[start:]]
    left = len(lines) - MOST_REASON_LINES
    return " ".join(line for line in lines[:MOST_REASON_LINES] if line) + (f" ({left} more lines in the log)" if left > 0 else "")
