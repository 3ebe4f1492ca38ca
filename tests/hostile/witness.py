"""Plays tricks on a stack, and tells what they did to the agent and to the job beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import psutil

from tests.e2e.stack import Stack
from tests.hostile.neighbour import CODE, Neighbour
from tests.hostile.rounds import PlayedTrick
from tests.processes import command_of

#: For the start and the end of a script on a crowded machine.
PLAY_SECONDS = 90.0


class Witness:
    """A stack of one agent with `slots` slots, and the job beside, which is there before the first trick. What is harmed is had anew, and is not
    looked at in the end."""

    def __init__(self, stack: Stack, slots: int) -> None:
        self._stack, self._slots = stack, slots
        self._agent, self._neighbour = agent_of(stack), Neighbour.start(stack)

    def play(self, names: Sequence[str]) -> Mapping[str, PlayedTrick]:
        """Run tricks side by side to their ends."""
        jobs = {name: self._stack.submit(spec_of(name)) for name in names}
        return {name: self._end_of(name, job_id) for name, job_id in jobs.items()}

    def _end_of(self, name: str, job_id: str) -> PlayedTrick:
        try:
            return PlayedTrick(self._stack.wait_for_state(job_id, "completed", "failed", timeout=PLAY_SECONDS))
        except AssertionError as error:
            self._stack.cancel(job_id)
            return PlayedTrick(self._stack.job(job_id), f"{name}: {error}")

    def find_harm(self) -> str:
        """Return what is wrong with the agent, its node or the job beside, and mend it. Empty: nothing."""
        try:
            self._neighbour.goes_on()
            assert agent_of(self._stack) == self._agent, "the agent has died and was started anew"
            (node,) = self._stack.get("/cluster/nodes")["items"]
            assert node["state"] == "ready", node
        except (AssertionError, TimeoutError, httpx.HTTPError) as error:
            self._stack.tidy(agents=1, slots=self._slots)
            self._agent, self._neighbour = agent_of(self._stack), Neighbour.start(self._stack)
            return str(error) or type(error).__name__
        return ""

    def end(self) -> None:
        """Find everything that the job beside ever said, once."""
        self._neighbour.end()


def spec_of(name: str) -> dict[str, Any]:
    """The job of one trick."""
    return {
        "name": name.replace("_", "-"),
        "script": {"path": str(CODE / "tricks.py"), "args": [name]},
        "environment": {"working_directory": str(CODE)},
        "fault_tolerance": {"max_restarts": 0},
    }


def agent_of(stack: Stack) -> psutil.Process:
    """The agent of the stack. Raises AssertionError where there is none."""
    agents = [process for process in stack.processes() if "paceline.cluster.agent.main" in " ".join(command_of(process))]
    assert len(agents) == 1, f"{len(agents)} agents"
    return agents[0]
