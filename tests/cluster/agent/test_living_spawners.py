"""Cards of an agent whose ranks have packages of their own: what its spawners hold when it has gone, and what the next agents may offer then."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from paceline.cluster.states import RankState
from tests.cluster.agent.conftest import EXIT_TIMEOUT_SECONDS, AgentProcess, assignment, drained, running, training_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.nvml import FakeMachine
from tests.processes import command_of, is_alive, kill_all
from tests.waiting import until


@pytest.fixture
def agent(agent: AgentProcess, tmp_path: Path) -> AgentProcess:
    """An agent on a machine with three cards."""
    folder = tmp_path / "machine"
    folder.mkdir()
    agent.environment, agent.slots = FakeMachine(folder, cards=3).environment, None
    return agent


@pytest.fixture
def neighbour(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> Iterator[AgentProcess]:
    """Another agent on the same machine."""
    (tmp_path / "next").mkdir()
    other = AgentProcess(tmp_path / "next" / "agent", coordinator.url)
    other.environment, other.slots = agent.environment, None
    coordinator.tokens.add("another")
    yield other
    kill_all(other.processes())
    if other.process is not None:
        other.process.wait(EXIT_TIMEOUT_SECONDS)


def with_packages(steps: int) -> dict[str, Any]:
    spec = training_job(steps=steps)
    return {**spec, "environment": {**spec["environment"], "requirements": []}}


async def start_with_a_rank(agent: AgentProcess, coordinator: Coordinator, steps: int) -> psutil.Process:
    """Start the agent with card 0 and a rank on it, which has packages. Returns the spawner of those: ranks carry its command line."""
    agent.start("--gpus", "0")
    await coordinator.desire(assignment("job", world("job", device="cuda"), spec=with_packages(steps)))
    await coordinator.until(running("job") if steps == 0 else drained("job"))
    return agent.leaders("--environment")[0]


def default_spawners(agent: AgentProcess) -> list[psutil.Process]:
    told = [(each, command_of(each)) for each in agent.processes()]
    return [each for each, words in told if "paceline.cluster.agent.spawner" in words and "--environment" not in words]


async def kill(process: psutil.Process) -> None:
    """Kill a spawner, and wait for its end."""
    process.kill()
    await until(lambda: not is_alive(process), "the end of a spawner")


async def test_a_spawner_without_ranks_gives_up_the_card_that_the_next_agent_does_not_offer(
    agent: AgentProcess, neighbour: AgentProcess, coordinator: Coordinator
) -> None:
    await start_with_a_rank(agent, coordinator, steps=1)
    await agent.end(signal.SIGHUP)
    agent.start("--gpus", "1,2")
    await coordinator.until(lambda c: len(c.hellos) == 2)
    neighbour.start("--gpus", "0", token="another")
    await coordinator.until(lambda c: len(c.hellos) == 3)
    await neighbour.end()
    await agent.end()


async def test_an_agent_that_was_upgraded_while_no_rank_ran_starts_ranks_with_the_new_code(
    agent: AgentProcess, coordinator: Coordinator
) -> None:
    """The spawner of the version before was adopted for good: all ranks ran the old trainer, whatever version the node said it had."""
    await start_with_a_rank(agent, coordinator, steps=1)
    before = {each.pid for each in agent.processes() if "paceline.cluster.agent.spawner" in command_of(each)}
    await agent.end(signal.SIGHUP)
    agent.start("--gpus", "0")
    await coordinator.until(lambda c: len(c.hellos) == 2)
    await coordinator.desire(assignment("next", world("next", device="cuda"), spec=with_packages(0)))
    await coordinator.until(running("next"))
    assert before
    assert before.isdisjoint(each.pid for each in agent.processes())
    await agent.end()


async def test_a_rank_with_packages_keeps_its_slots_the_same_cards(agent: AgentProcess, coordinator: Coordinator) -> None:
    spawner = await start_with_a_rank(agent, coordinator, steps=0)
    await agent.end(signal.SIGKILL)
    await kill(*default_spawners(agent))
    agent.start("--gpus", "1")
    assert await agent.exited() == 1
    assert "1 rank of the agent before still runs" in agent.log
    assert f"start it with --gpus 0 until they have ended, or end them first (kill {spawner.pid})" in agent.log
    agent.start("--gpus", "0")
    await coordinator.until(lambda c: len(c.hellos) == 2 and running("job")(c))
    await agent.end()


async def test_an_agent_comes_back_to_its_cards_after_a_spawner_of_packages_has_ended(
    agent: AgentProcess, coordinator: Coordinator
) -> None:
    await kill(await start_with_a_rank(agent, coordinator, steps=1))
    await agent.end(signal.SIGKILL)
    agent.start("--gpus", "0")
    await coordinator.until(lambda c: len(c.hellos) == 2)
    await agent.end()


async def test_a_card_stays_locked_when_the_spawners_that_an_agent_has_taken_over_end_one_after_the_other(
    agent: AgentProcess, neighbour: AgentProcess, coordinator: Coordinator
) -> None:
    spawner = await start_with_a_rank(agent, coordinator, steps=0)
    await agent.end(signal.SIGKILL)
    agent.start("--gpus", "0")
    await coordinator.until(lambda c: len(c.hellos) == 2 and running("job")(c))
    await kill(*default_spawners(agent))
    await until(lambda: default_spawners(agent), "the next default spawner")
    await kill(spawner)
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.EXITED)
    neighbour.start("--gpus", "0", token="another")
    assert await neighbour.exited() == 1
    assert f"data folder {agent.data}) already" in neighbour.log
    await agent.end()
