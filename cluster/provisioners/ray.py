"""Nodes of a running Ray cluster: each is an actor in a placement group of its own, which keeps an agent running.

Ray is imported when it is first needed, and its calls, which block, are made in a thread. The handle is the actor's name.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from paceline.cluster.provisioners.provisioner import LaunchPhase, ProvisionerContext, ProvisionerError, SeenLaunch, WantedNode
from paceline.cluster.provisioners.ray_agent import agent_keeper
from paceline.cluster.provisioners.ray_settings import RaySettings

ANSWER_SECONDS = 5.0
END_SECONDS = 15.0
CALL_SECONDS = 50.0
PREFIX = "paceline-"
T = TypeVar("T")


class RayProvisioner:
    """Makes an actor for each node, and keeps no state but its connection to Ray."""

    def __init__(self, settings: RaySettings, context: ProvisionerContext) -> None:
        self._settings = settings
        self._lock = asyncio.Lock()

    async def launch(self, request: WantedNode) -> str:
        """Make the placement group and the actor, unless they are there. Returns the actor's name."""
        return await self._call(lambda ray: self._launch(ray, request))

    async def poll(self, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        """Ask every actor at once how its agent is."""
        return await self._call(lambda ray: self._poll(ray, handles)) if handles else {}

    async def terminate(self, handle: str) -> None:
        """Have the actor drain its agent; one that does not run yet is given up."""
        await self._call(lambda ray: self._terminate(ray, handle))

    async def close(self) -> None:
        """Leave the Ray cluster. The nodes stay."""
        if "ray" in sys.modules:
            await asyncio.to_thread(sys.modules["ray"].shutdown)

    async def _call(self, work: Callable[[Any], T]) -> T:
        async with self._lock:
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    return await asyncio.to_thread(self._in_cluster, work)
            except TimeoutError:
                raise self._unreachable(f"no answer within {CALL_SECONDS:g} s") from None

    def _in_cluster(self, work: Callable[[Any], T]) -> T:
        try:
            ray = importlib.import_module("ray")
        except ImportError as error:
            raise ProvisionerError(
                "the coordinator has no Ray", "pip install 'paceline[ray]' there, of the version that the cluster has"
            ) from error
        try:
            if not ray.is_initialized():
                ray.init(address=self._settings.address, namespace=self._settings.namespace, log_to_driver=False, logging_level="ERROR")
            return work(ray)
        except ProvisionerError:
            raise
        except Exception as error:
            raise self._unreachable(str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__) from error

    def _unreachable(self, why: str) -> ProvisionerError:
        remedy = "look at `ray status` on the coordinator's machine, which must be able to reach the head; versions of Ray and Python must be equal"
        return ProvisionerError(f"Ray at {self._settings.address} cannot be used: {why}", remedy)

    def _launch(self, ray: Any, request: WantedNode) -> str:
        name, deadline = f"{PREFIX}{request.name}", time.monotonic() + END_SECONDS
        while (present := self._find(ray, name)) is not None:
            if self._states(ray, [present])[0] not in ("ending", "ended"):
                return name
            if time.monotonic() > deadline:
                raise ProvisionerError(
                    f"the actor {name} of an earlier node is still being ended", "nothing: it is tried again in a moment"
                )
            time.sleep(0.1)
        wanted = {"CPU": float(self._settings.cpus), **self._settings.resources}
        wanted |= {"GPU": float(self._settings.gpus)} if self._settings.gpus else {}
        group = ray.util.placement_group([wanted], strategy="STRICT_PACK", name=name, lifetime="detached")
        scheduling = importlib.import_module("ray.util.scheduling_strategies")
        options = {
            "name": name,
            "lifetime": "detached",
            "num_cpus": self._settings.cpus,
            "num_gpus": self._settings.gpus,
            "resources": dict(self._settings.resources),
            "scheduling_strategy": scheduling.PlacementGroupSchedulingStrategy(placement_group=group),
            "max_concurrency": 4,
        }
        actor = ray.remote(agent_keeper()).options(**options).remote()
        actor.start.remote(agent_command(self._settings, request), request.join_token, name)
        return name

    def _find(self, ray: Any, name: str) -> Any | None:
        try:
            return ray.get_actor(name, namespace=self._settings.namespace)
        except ValueError:
            return None

    def _poll(self, ray: Any, handles: Sequence[str]) -> Mapping[str, SeenLaunch]:
        actors = {handle: actor for handle in handles if (actor := self._find(ray, handle)) is not None}
        states = dict(zip(actors, self._states(ray, list(actors.values())), strict=True))
        return {handle: _launch_of(states.get(handle, "gone")) for handle in handles}

    def _states(self, ray: Any, actors: Sequence[Any]) -> list[str]:
        """What each actor says of its agent; `waiting` where it does not answer, since it has no machine yet."""
        asked = [actor.state.remote() for actor in actors]
        ready = set(ray.wait(asked, num_returns=len(asked), timeout=ANSWER_SECONDS)[0]) if asked else set()
        return [_answer(ray, each) if each in ready else "waiting" for each in asked]

    def _terminate(self, ray: Any, handle: str) -> None:
        actor = self._find(ray, handle)
        if actor is None:
            return
        if self._states(ray, [actor]) == ["waiting"]:
            ray.kill(actor)
            ray.util.remove_placement_group(ray.util.get_placement_group(handle))
        else:
            actor.end.remote()


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
    words += ["--checkpoints", settings.checkpoints] if settings.checkpoints else []
    words += [] if settings.gpus else ["--gpus", "none"]
    slots = request.slots if request.slots is not None or settings.gpus else settings.cpus
    words += ["--slots", str(slots)] if slots is not None else []
    for key, value in sorted(request.labels.items()):
        words += ["--label", f"{key}={value}"]
    return words


def _answer(ray: Any, reference: Any) -> str:
    try:
        return str(ray.get(reference))
    except ray.exceptions.RayActorError:
        return "gone"


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
