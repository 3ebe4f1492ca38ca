"""An environment that is on the node already, named by `environment.python`: looked at before any rank starts in it.

A script needs an interpreter that runs. The trainer needs more, because its ranks are forked from a process of Paceline's with that interpreter: the
agent's version of Python, since the agent's compiled packages are put behind its own, and the agent's torch.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.environments.node_python import NodePython
from paceline.cluster.agent.supervisor import SPAWNER
from paceline.location import ROOT

LOOK_SECONDS = 60.0
#: A killed interpreter is gone after so long, unless its disk does not answer.
KILLED_SECONDS = 5.0
#: The most that is read of each of the interpreter's streams: it is a job's program, and may print without end.
MOST_BYTES = 1 << 16
#: The errors of a start that comes to the same another time.
_REFUSALS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOEXEC})
_LOOK = """
import importlib.metadata, json, platform, sys, sysconfig
try:
    torch = importlib.metadata.version("torch")
except importlib.metadata.PackageNotFoundError:
    torch = None
print(json.dumps({"python": platform.python_version(), "torch": torch, "prefix": sys.prefix, "packages": sysconfig.get_paths()["purelib"]}))
"""
#: Puts the agent's packages behind those of the interpreter, then runs the spawner as `-m` would.
_BEHIND = "import sys, site, runpy; sys.path[0] = {root!r}; del sys.argv[1]; [site.addsitedir(each) for each in {sites!r}]; runpy.run_module({module!r}, run_name='__main__', alter_sys=True)"


class PythonRefusedError(Exception):
    """The interpreter cannot be used on this node. The message says why, and the way out."""


class PythonNotAnsweringError(OSError):
    """The node is too busy, or its disk too slow, to run the interpreter: another try may help."""


class InterpreterFacts(msgspec.Struct, frozen=True):
    """An interpreter, as it describes itself."""

    python: str
    torch: str | None
    prefix: str
    packages: str  # its site-packages


async def look_at(
    path: str, node: NodePython, variables: Mapping[str, str], account: Account | None, *, is_script: bool
) -> InterpreterFacts:
    """InterpreterFacts at the interpreter `path` by running it. Raises PythonRefusedError where the job's ranks cannot have it, and
    PythonNotAnsweringError."""
    where = f"environment.python={path}"
    if not os.path.exists(path):
        raise PythonRefusedError(
            f"{where}: there is no such file on this node; create the environment here, or ask for nodes that have it by labels"
        )
    if os.path.isdir(path) or not os.access(path, os.X_OK):
        raise PythonRefusedError(f"{where} is no program on this node; name the interpreter, as /opt/venv/bin/python")
    found = await _run(path, where, variables, account)
    if is_script:
        return found
    if minor(found.python) != minor(node.version):
        raise PythonRefusedError(
            f"{where} is Python {found.python}, and this node's Paceline runs on {node.version}: its ranks need the same minor version; create the "
            f"environment with Python {minor(node.version)}, or use script"
        )
    if found.torch is None:
        raise PythonRefusedError(f"{where} has no torch; install torch=={node.torch} there, or use environment.requirements")
    if found.torch != node.torch:
        raise PythonRefusedError(
            f"{where} has torch {found.torch}, and this node trains with {node.torch}: install that there, or use script, which may have another"
        )
    return found


def minor(version: str) -> str:
    """The first two parts of a version of Python."""
    return ".".join(version.split(".")[:2])


async def _run(path: str, where: str, variables: Mapping[str, str], account: Account | None) -> InterpreterFacts:
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "-I",
            "-c",
            _LOOK,
            cwd="/",
            env=dict(variables),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            **({} if account is None else {"user": account.uid, "group": account.gid, "extra_groups": []}),  # type: ignore[arg-type]
        )
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise PythonNotAnsweringError(f"{where} does not start on this node now: {error.strerror}") from error
        raise PythonRefusedError(f"{where} does not start on this node: {error.strerror}") from error
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            said, errors = await asyncio.gather(*(_read_some(process, stream) for stream in (process.stdout, process.stderr)))
            await process.wait()
        return msgspec.json.decode(said, type=InterpreterFacts)
    except TimeoutError:
        raise PythonNotAnsweringError(f"{where} did not say its version within {LOOK_SECONDS:g} s on this node") from None
    except msgspec.DecodeError:
        last = (errors.decode(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
        raise PythonRefusedError(f"{where} is no Python that runs on this node: {last}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KILLED_SECONDS):
                await process.wait()


async def _read_some(process: asyncio.subprocess.Process, stream: asyncio.StreamReader | None) -> bytes:
    """All that a process prints on a stream; one that prints more than MOST_BYTES is killed, and the rest is not read."""
    assert stream is not None
    said = bytearray()
    while more := await stream.read(MOST_BYTES):
        said += more
        if len(said) > MOST_BYTES:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            break
    return bytes(said)


def key_of_python(path: str, found: InterpreterFacts, node: NodePython) -> str:
    """The name of its spawner: another one once packages were installed there or removed."""
    with contextlib.suppress(OSError):
        changed = os.stat(found.packages).st_mtime_ns
        return hashlib.sha256(json.dumps([path, found.python, found.torch, found.prefix, changed, node.identity]).encode()).hexdigest()[:32]
    raise PythonRefusedError(f"environment.python={path}: {found.packages} is not there on this node")


def spawner_command(path: str, node: NodePython) -> tuple[str, ...]:
    """The command line of a spawner with this interpreter."""
    return (path, "-c", _BEHIND.format(root=str(ROOT), sites=list(node.sites), module=SPAWNER), SPAWNER)


def variables_of(python: Path) -> dict[str, str]:
    """Variables that activating the environment of this interpreter would set, but for PATH: VIRTUAL_ENV of a virtual one, CONDA_PREFIX of conda's."""
    prefix = python.parent.parent
    if (prefix / "pyvenv.cfg").exists():
        return {"VIRTUAL_ENV": str(prefix)}
    return {"CONDA_PREFIX": str(prefix)} if (prefix / "conda-meta").exists() else {}
