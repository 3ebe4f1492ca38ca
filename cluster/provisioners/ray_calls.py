"""The calls to Ray, in a process of their own: `python -m paceline.cluster.provisioners.ray_calls ADDRESS NAMESPACE`.

Each line of standard input is a call as JSON, and gets one line: `{"answer": ...}`, `{"refused": why}` or `{"error": why}`. Ray ends this process where its
head has not answered for 60 s; the coordinator starts another one with its next call.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.cluster.provisioners.ray_agent import agent_keeper

ANSWER_SECONDS = 5.0
END_SECONDS = 15.0
LONGEST_REASON = 300


class RayCallRefusedError(Exception):
    """A call cannot be made now, and will be later."""


class RayCalls:
    """Blocking calls of the provider to a Ray cluster that is connected."""

    def __init__(self, ray: Any, namespace: str) -> None:
        self._ray, self._namespace = ray, namespace

    def launch(self, name: str, words: list[str], token: str, cpus: int, gpus: int, resources: dict[str, float]) -> None:
        """Make the placement group and the actor, unless they are there."""
        if not self._make_way(name):
            return
        wanted = {"CPU": float(cpus), **resources} | ({"GPU": float(gpus)} if gpus else {})
        group = self._ray.util.placement_group([wanted], strategy="STRICT_PACK", name=name, lifetime="detached")
        scheduling = importlib.import_module("ray.util.scheduling_strategies")
        options = {
            "name": name,
            "lifetime": "detached",
            "num_cpus": cpus,
            "num_gpus": gpus,
            "resources": resources,
            "scheduling_strategy": scheduling.PlacementGroupSchedulingStrategy(placement_group=group),
            "max_concurrency": 4,
        }
        # what a method is told would be lost if this process ended before there is room for the actor
        self._ray.remote(agent_keeper()).options(**options).remote(words, token, name)

    def poll(self, names: list[str]) -> dict[str, str]:
        """The state of each: `running`, `waiting`, `ending`, `ended` or `gone`. Nothing is said of one that cannot be reached for the moment."""
        actors = {name: actor for name in names if (actor := self._find(name)) is not None}
        found = dict(zip(actors, self._states(list(actors.values())), strict=True))
        states = {name: found.get(name, "gone") for name in names}
        for name in names:
            if states[name] == "gone":  # an actor that was killed has left its group
                self._remove_group(name)
        return {name: state for name, state in states.items() if state != "away"}

    def terminate(self, name: str) -> None:
        """Have the actor drain its agent, or give it up where it does not run yet."""
        actor = self._find(name)
        state = "gone" if actor is None else self._states([actor])[0]
        if state == "away":
            raise RayCallRefusedError(f"the actor {name} cannot be reached for the moment")
        if state == "waiting":
            self._ray.kill(actor)
        if actor is None or state in ("waiting", "gone"):
            self._remove_group(name)
        else:
            actor.end.remote()

    def _make_way(self, name: str) -> bool:
        """Wait until what is left of an earlier node of this name is gone. Returns False where one runs or waits."""
        deadline = time.monotonic() + END_SECONDS
        while (present := self._find(name)) is not None or (group := self._group(name)) is not None:
            if present is None:
                self._ray.util.remove_placement_group(group)  # of a launch that was broken off, or of an actor that is just being ended
            elif self._states([present])[0] not in ("ending", "ended", "gone"):
                return False
            if time.monotonic() > deadline:
                raise RayCallRefusedError(f"the actor {name} of an earlier node is still being ended")
            time.sleep(0.1)
        return True

    def _find(self, name: str) -> Any | None:
        try:
            return self._ray.get_actor(name, namespace=self._namespace)
        except ValueError:
            return None

    def _group(self, name: str) -> Any | None:
        """The placement group of this name; None: there is none, or it has been removed."""
        try:
            group = self._ray.util.get_placement_group(name)
        except ValueError:
            return None
        return None if self._ray.util.placement_group_table(group).get("state") == "REMOVED" else group

    def _remove_group(self, name: str) -> None:
        if (group := self._group(name)) is not None:
            self._ray.util.remove_placement_group(group)

    def _states(self, actors: Sequence[Any]) -> list[str]:
        """What each actor says of its agent; `waiting` where it does not answer, since it has no machine yet."""
        asked = [actor.state.remote() for actor in actors]
        ready = set(self._ray.wait(asked, num_returns=len(asked), timeout=ANSWER_SECONDS)[0]) if asked else set()
        return [self._answer(each) if each in ready else "waiting" for each in asked]

    def _answer(self, reference: Any) -> str:
        try:
            return str(self._ray.get(reference))
        except self._ray.exceptions.ActorUnavailableError:  # a connection broke, and the actor may live
            return "away"
        except self._ray.exceptions.RayActorError:
            return "gone"


def answer(calls: RayCalls, line: bytes) -> dict[str, Any]:
    """Carry out the call in a line."""
    try:
        fields = msgspec.json.decode(line)
        return {"answer": getattr(calls, fields.pop("call"))(**fields)}
    except RayCallRefusedError as refusal:
        return {"refused": str(refusal)}
    except Exception as error:  # noqa: BLE001 - whatever Ray raises is told, in words
        return {"error": _in_words(error)}


def main(address: str, namespace: str) -> int:
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever Ray prints is no answer
    ray: Any = importlib.import_module("ray")
    lines = iter(sys.stdin.buffer.readline, b"")
    try:
        ray.init(address=address, namespace=namespace, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # noqa: BLE001 - whatever Ray raises is told, in words
        next(lines, b"")
        answers.write(msgspec.json.encode({"error": _in_words(error)}) + b"\n")
        return 1
    calls = RayCalls(ray, namespace)
    for line in lines:
        answers.write(msgspec.json.encode(answer(calls, line)) + b"\n")
    return 0


def _in_words(error: Exception) -> str:
    said = str(error).strip()
    return said.splitlines()[0][:LONGEST_REASON] if said else type(error).__name__


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
