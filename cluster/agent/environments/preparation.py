"""Prepares the packages of a rank before it starts: the next step after its code. Chooses the interpreter, and the spawner that has it warm.

With `--run-as` no spawner has it: a spawner is root until it has forked, and would run code of the job's packages as root. There the default spawner forks the
rank, which becomes the user first and executes the interpreter then.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.environments.built import BuiltEnvironments
from paceline.cluster.agent.environments.node_python import NodePython, this_python
from paceline.cluster.agent.environments.own_python import (
    PythonNotAnsweringError,
    PythonRefusedError,
    key_of_python,
    look_at,
    spawner_command,
    variables_of,
)
from paceline.cluster.agent.environments.uv import BuildFailedError, IndexUnreachableError
from paceline.cluster.agent.spawner_fleet import SpawnerFailedError, SpawnerFleet, SpawnerInterruptedError, environment_command
from paceline.monitoring.files import Appender
from paceline.training.link import Interpreter, RankOrder
from paceline.training.rank_folder import RankFolder

if TYPE_CHECKING:
    from paceline.training.spec.job import JobSpec

#: In front of each line about packages in a job's log.
PREFIX = "environment: "
_DECIDED_BY_THE_NODE = "UV_"
#: What another try may help against.
_PASSING = (IndexUnreachableError, PythonNotAnsweringError, SpawnerInterruptedError)


class PackagesRefusedError(Exception):
    """The job's ranks cannot have their packages on this node, and another try will not help. The message says why."""


def variables_for_builds(allowed: Mapping[str, str], agent: Mapping[str, str], account: Account | None) -> dict[str, str]:
    """The environment of uv: what ranks get (`allowed`), and the agent's own settings of uv, such as its index."""
    variables = dict(allowed) | {name: value for name, value in agent.items() if name.startswith(_DECIDED_BY_THE_NODE)}
    return variables if account is None else account.environment(variables)


class JobEnvironments:
    """The packages of this node's jobs. `in_use`: the keys of environments in which ranks live."""

    def __init__(
        self,
        folder: Path,
        account: Account | None,
        variables: Mapping[str, str],
        fleet: SpawnerFleet,
        in_use: Callable[[], Collection[str]],
    ) -> None:
        self._account, self._variables, self._fleet = account, variables, fleet
        self._built = BuiltEnvironments(folder, account, variables, lambda: {*in_use(), *fleet.alive()})
        self._node: NodePython | None = None
        self._asks_node = asyncio.Lock()

    async def prepare(self, order: RankOrder) -> RankOrder:
        """The order with the interpreter that its rank gets. Raises PackagesRefusedError; IndexUnreachableError and OSError where another try may
        help."""
        spec = order.job_spec
        if spec.environment.requirements is None and spec.environment.python is None:
            return order
        if self._account is not None and spec.script is None:
            self._fleet.require_interpreters()
        folder = RankFolder.at(Path(order.folder))
        try:
            if spec.environment.requirements is not None:
                interpreter = await self._install(spec, spec.environment.requirements, lambda line: _say(folder, line))
            else:
                interpreter = await self._use(spec, spec.environment.python or "")
        except (BuildFailedError, PythonRefusedError, SpawnerFailedError, *_PASSING) as error:
            _say(folder, f"ERROR {error}")
            if isinstance(error, _PASSING):
                raise
            raise PackagesRefusedError(str(error)) from error
        return msgspec.structs.replace(order, interpreter=interpreter)

    async def _install(self, spec: JobSpec, requirements: tuple[str, ...], say: Callable[[str], None]) -> Interpreter:
        node, own_torch = await self._this_node(), spec.environment.own_torch
        if unread := spec.environment.unread_requirements:
            raise BuildFailedError(
                f"environment.requirements names {unread[0]}, which was not read when the job was submitted; submit it anew"
            )
        try:
            key, python = await self._built.interpreter(node, requirements, own_torch=own_torch, say=say)
        except BuildFailedError as error:
            hint = _hint(str(error), node, own_torch)
            raise type(error)(f"environment.requirements cannot be installed: {error}{hint}") from error
        if own_torch or self._account is not None:
            return Interpreter(python=str(python), environment=key)
        await self._fleet.ensure(key, environment_command(python), variables_of(python))
        return Interpreter(python=str(python), environment=key, spawner=key)

    async def _use(self, spec: JobSpec, path: str) -> Interpreter:
        node, is_script = await self._this_node(), spec.script is not None
        found = await look_at(path, node, self._variables, self._account, is_script=is_script)
        if is_script or self._account is not None:
            return Interpreter(python=path)
        key = key_of_python(path, found, node)
        await self._fleet.ensure(key, spawner_command(path, node), variables_of(Path(path)))
        return Interpreter(python=path, spawner=key)

    async def _this_node(self) -> NodePython:
        async with self._asks_node:
            if self._node is None:
                self._node = await asyncio.to_thread(this_python)
            return self._node


def begin(order: RankOrder) -> None:
    """Note that the rank's packages are being prepared: what is in its output now is no sign of a process. The spawner takes the note away."""
    if order.spec.installs_packages:
        with contextlib.suppress(FileExistsError):  # by itself it would be made where a link of the ranks' user leads
            os.close(os.open(RankFolder.at(Path(order.folder)).preparing, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _say(folder: RankFolder, line: str) -> None:
    """Add a line to the job's log."""
    with contextlib.suppress(OSError), Appender(folder.output) as output:  # a full disk must not end the build, whose end tells
        output.append(f"{PREFIX}{line}\n".encode(errors="backslashreplace"))


def _hint(why: str, node: NodePython, own_torch: bool) -> str:
    if "torch==" not in why and "torch<" not in why and "torch>" not in why:
        return ""
    if own_torch:
        return ""
    return (
        f" This node trains with torch {node.torch}, which jobs cannot replace: ask for packages that go with it, or set environment.own_torch=true "
        "for a script"
    )


__all__ = ["JobEnvironments", "PackagesRefusedError", "begin", "variables_for_builds"]
