"""The container engines of this node: which ones work, and how a script's rank becomes a container of the first that does."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from paceline.cluster.agent.account import Account
from paceline.cluster.agent.containers.engines import Apptainer, ContainerEngine, ContainerMount, ContainerRun, Docker, Podman
from paceline.cluster.agent.spawner_link import Spawn
from paceline.distributed.env import VISIBLE_DEVICES
from paceline.training.link import RankOrder
from paceline.training.rank_folder import RankFolder

PROBE_SECONDS = 5.0
END_SECONDS = 60.0
#: Variables of the node that are not passed on, since the container has its own.
_NOT_PASSED_ON = frozenset({"PATH", "VIRTUAL_ENV", "CONDA_PREFIX"})

log = logging.getLogger(__name__)


class NoEngineError(Exception):
    """The job wants a container, and this node cannot run any now."""


def known_engines(account: Account | None) -> tuple[ContainerEngine, ...]:
    """All engines, in the order in which they are preferred. `account`: the one that ranks run as; None: the agent's."""
    is_root = account is None and os.geteuid() == 0
    return (Podman(rootless=not is_root), Docker(), Apptainer(), Apptainer("singularity"))


def working_engines(account: Account | None, variables: Mapping[str, str]) -> tuple[ContainerEngine, ...]:
    """The engines that can run containers for the user of the ranks now. `variables`: what ranks have of the agent's."""
    options = _options_of(account, variables)
    return tuple(engine for engine in known_engines(account) if shutil.which(engine.name) is not None and _works(engine, options))


def _options_of(account: Account | None, variables: Mapping[str, str]) -> dict[str, Any]:
    """The options of `subprocess` for an engine. It is run by the user of the ranks: a user has containers, images and rights of its own."""
    return {} if account is None else account.process_options(variables)


def _works(engine: ContainerEngine, options: Mapping[str, Any]) -> bool:
    try:
        done = subprocess.run(
            engine.probe(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False, **options
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("%s is here and does not answer: %s; jobs with environment.image do not use it", engine.name, error)
        return False
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["it gives no reason"])[-1]
        log.warning("%s is here and does not work: %s; jobs with environment.image do not use it", engine.name, why)
    return done.returncode == 0


class NodeEngines:
    """Runs ranks in containers. `engines`: those that work, the preferred one first; `variables`: what ranks have of the agent's."""

    def __init__(self, engines: tuple[ContainerEngine, ...], account: Account | None, variables: Mapping[str, str]) -> None:
        self._engines, self._account, self._variables = engines, account, variables
        self._ending: set[asyncio.Task[None]] = set()

    def contained(self, spawn: Spawn) -> Spawn:
        """The launch of a script's rank, in a container where its job names an image. Raises NoEngineError."""
        spec = spawn.order.job_spec.environment
        if spec.image is None:
            return spawn
        if not self._engines:
            raise NoEngineError(f"environment.image={spec.image}: neither podman nor docker nor apptainer works on this node any more")
        order, account = spawn.order, self._account
        shown = spawn.environment.get(VISIBLE_DEVICES, "")
        run = ContainerRun(
            name=_name(order),
            image=spec.image,
            command=spawn.program,
            directory=spawn.working_directory or order.folder,
            variables=tuple(sorted(spawn.environment.keys() - (_NOT_PASSED_ON - spec.variables.keys()))),
            mounts=_mounts(order, spec.mounts),
            uid=os.getuid() if account is None else account.uid,
            gid=os.getgid() if account is None else account.gid,
            gpus=tuple(shown.split(",")) if shown and order.world.device == "cuda" else (),
        )
        return msgspec.structs.replace(spawn, program=self._engines[0].run(run), fresh=True, container=True)

    def end(self, order: RankOrder) -> None:
        """Remove what is left of the container of a rank that has ended. Harmless where there is none."""
        if order.spec.part("environment", "image") is None or not self._engines:
            return
        command = self._engines[0].end(_name(order))
        if command is not None:
            task = asyncio.create_task(_run_quietly(command, _options_of(self._account, self._variables)))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Wait for the removals that are under way."""
        await asyncio.gather(*self._ending)


def _name(order: RankOrder) -> str:
    world = order.world
    return f"paceline-{world.job_id.lower()}-g{world.process.generation}-r{world.process.rank}"


def _mounts(order: RankOrder, named: tuple[str, ...]) -> tuple[ContainerMount, ...]:
    """The job's folders and what the rank says to its agent, under the paths that they have on the node, and what the job names."""
    own = [str(RankFolder.at(Path(order.folder)).path.parents[1]), order.agent_socket, order.working_directory or ""]
    job = own[0]
    paths = [path for path in own if path and (path == job or not path.startswith(f"{job}/"))]
    return (*(ContainerMount(path, path) for path in dict.fromkeys(paths)), *map(ContainerMount.parse, named))


async def _run_quietly(command: tuple[str, ...], options: Mapping[str, Any]) -> None:
    nothing = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=nothing, stdout=nothing, stderr=nothing, **options)
    except OSError as error:
        log.warning("%s cannot be run: %s", command[0], error)
        return
    try:
        async with asyncio.timeout(END_SECONDS):
            await process.wait()
    except TimeoutError:
        log.warning("%s did not end within %g s", " ".join(command), END_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
