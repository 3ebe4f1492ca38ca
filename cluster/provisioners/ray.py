"""Nodes of a running Ray cluster: each is an actor in a placement group of its own, which keeps an agent running.

Ray's calls are made by a process of its own (`ray_calls`): they block, and Ray ends the process that is connected to a head which does not answer for
60 s. The handle is the actor's name.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from paceline.cluster.provisioners.passed_names import pass_env_words
from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError, SeenLaunch, WantedNode
from paceline.cluster.provisioners.ray_settings import RaySettings
from paceline.extras import pip_install
from paceline.location import ROOT

CALL_SECONDS = 50.0
REACH_SECONDS = 5.0
CALLS = "paceline.cluster.provisioners.ray_calls"
PREFIX = "paceline-"
LONGEST_ANSWER = 1 << 20


class RayProvisioner:
    """Makes an actor for each node, and keeps no state but the process that is connected to Ray."""

    def __init__(self, settings: RaySettings, context: ProvisionerContext) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def launch(self, request: WantedNode) -> str:
        """Make the placement group and the actor, unless they are there. Returns the actor's name."""
        name, settings = f"{PREFIX}{request.name}", self._settings
        wanted = {"cpus": settings.cpus, "gpus": settings.gpus, "resources": dict(settings.resources)}
        await self._call("launch", name=name, words=agent_command(settings, request), token=request.join_token, **wanted)
        return name

    async def poll(self, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        """Ask every actor at once how its agent is. One that cannot be reached for the moment is left out."""
        states = await self._call("poll", names=list(handles)) if handles else {}
        return {handle: _launch_of(states[handle]) for handle in handles if handle in states}

    async def terminate(self, handle: str) -> None:
        """Have the actor drain its agent; one that does not run yet is given up."""
        await self._call("terminate", name=handle)

    async def close(self) -> None:
        """Leave the Ray cluster. The nodes stay."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _call(self, call: str, **fields: Any) -> Any:
        """One call, and its answer. Raises ProvisionerError with what Ray says."""
        if importlib.util.find_spec("ray") is None:
            remedy = f"{pip_install('ray')} there, of the version that the cluster has"
            raise ProvisionerError("the coordinator has no Ray", remedy, nothing_began=True)
        async with self._lock:
            await self._reach()
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    answer = await self._ask(msgspec.json.encode({"call": call, **fields}) + b"\n")
            except (TimeoutError, OSError, ValueError):
                await self.close()
                raise self._unreachable(f"no answer within {CALL_SECONDS:g} s") from None
            except BaseException:
                await self.close()  # or the next call would read the answer to this one
                raise
        if "refused" in answer:
            raise ProvisionerError(answer["refused"], "nothing: it is tried again in a moment")
        if "error" in answer:
            await self.close()
            raise self._unreachable(answer["error"])
        return answer["answer"]

    async def _reach(self) -> None:
        """Raise ProvisionerError where nothing listens at the head's address: Ray itself would try for a minute."""
        host, _, port = self._settings.address.removeprefix("ray://").rpartition(":")
        try:
            async with asyncio.timeout(REACH_SECONDS):
                _, writer = await asyncio.open_connection(host, int(port))
        except (OSError, TimeoutError) as error:
            await self.close()
            raise self._unreachable(str(error) or f"no answer within {REACH_SECONDS:g} s") from None
        writer.close()

    async def _ask(self, line: bytes) -> dict[str, Any]:
        if self._process is None or self._process.returncode is not None:
            pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
            command = (sys.executable, "-m", CALLS, self._settings.address, self._settings.namespace)
            self._process = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=nothing, limit=LONGEST_ANSWER
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        await self._process.stdin.drain()
        answer = await self._process.stdout.readline()
        return dict(msgspec.json.decode(answer)) if answer else {"error": "its head has ended"}

    def _unreachable(self, why: str) -> ProvisionerError:
        remedy = "look at `ray status` on the coordinator's machine, which must be able to reach the head; versions of Ray and Python must be equal"
        return ProvisionerError(f"Ray at {self._settings.address} cannot be used: {why}", remedy)


def agent_command(settings: RaySettings, request: WantedNode) -> list[str]:
    """The agent's command line. Words that begin with ~ are expanded on the machine."""
    words = [
        settings.paceline or str(Path(sys.executable).parent / "paceline"),
        "worker",
        *request.server_words,
        "--name",
        request.name,
    ]
    words += ["--data", f"{settings.directory}/{request.name}", "--drain-on-term", str(settings.drain_seconds)]
    words += ["--drain-seconds", str(settings.drain_seconds)]
    words += ["--checkpoints", settings.checkpoints] if settings.checkpoints else []
    words += [*pass_env_words(settings.pass_env), *settings.agent_words]
    words += [] if settings.gpus else ["--gpus", "none"]
    slots = request.slots if request.slots is not None or settings.gpus else settings.cpus
    words += ["--slots", str(slots)] if slots is not None else []
    for key, value in sorted(request.labels.items()):
        words += ["--label", f"{key}={value}"]
    return words


def _launch_of(state: str) -> SeenLaunch:
    match state:
        case "running":
            return SeenLaunch(LaunchPhase.RUNNING)
        case "waiting":
            return SeenLaunch(LaunchPhase.PENDING, "no machine of Ray's has what it asks for free: see `ray status`")
        case "ended":
            return SeenLaunch(LaunchPhase.ENDED, "its agent has ended")
        case "ending":
            return SeenLaunch(LaunchPhase.ENDED, "it is being drained and ended")
        case _:
            return SeenLaunch(LaunchPhase.ENDED, "Ray knows no such actor any more: it was ended, or its machine was lost")
