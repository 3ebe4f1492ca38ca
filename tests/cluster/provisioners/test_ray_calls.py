"""Calls to Ray, with a Ray in this process whose actors answer as a test says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.cluster.provisioners.ray_calls import RayCallRefusedError, RayCalls

NAME = "paceline-a"


class RayActorError(Exception):
    """Ray's word for an actor that has died."""


class ActorUnavailableError(RayActorError):
    """Ray's word for an actor that does not answer for the moment."""


@dataclass
class FakeRay:
    """One actor in its placement group. `answer`: the state that it tells, or what Ray raises."""

    answer: str | Exception
    removed: list[str] = field(default_factory=list)
    told_to_end: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.exceptions = SimpleNamespace(RayActorError=RayActorError, ActorUnavailableError=ActorUnavailableError)
        self.util = SimpleNamespace(
            get_placement_group=lambda name: name,
            placement_group_table=lambda group: {"state": "REMOVED" if group in self.removed else "CREATED"},
            remove_placement_group=self.removed.append,
        )

    def get_actor(self, name: str, namespace: str) -> Any:
        end = SimpleNamespace(remote=lambda: self.told_to_end.append(name))
        return SimpleNamespace(state=SimpleNamespace(remote=lambda: name), end=end)

    def wait(self, asked: Sequence[str], num_returns: int, timeout: float) -> tuple[Sequence[str], Sequence[str]]:
        return asked, ()

    def get(self, reference: str) -> str:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_an_actor_that_cannot_be_reached_for_a_moment_keeps_its_place() -> None:
    """Its group was removed, and with it the agent of a node that was well."""
    ray = FakeRay(ActorUnavailableError("The actor is temporarily unavailable"))
    calls = RayCalls(ray, "paceline")
    assert calls.poll([NAME]) == {}
    with pytest.raises(RayCallRefusedError, match=f"the actor {NAME} cannot be reached"):
        calls.terminate(NAME)
    assert ray.removed == []
    ray.answer = "running"
    assert calls.poll([NAME]) == {NAME: "running"}
    calls.terminate(NAME)
    assert (ray.removed, ray.told_to_end) == ([], [NAME])


def test_an_actor_that_was_killed_leaves_no_group() -> None:
    ray = FakeRay(RayActorError("The actor died"))
    assert RayCalls(ray, "paceline").poll([NAME]) == {NAME: "gone"}
    assert ray.removed == [NAME]
