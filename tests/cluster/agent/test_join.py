"""An agent until it serves: its token, its credential, a coordinator that is not there yet, and a spawner that loads torch meanwhile."""

from __future__ import annotations

import json
import signal

import pytest

from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.main import LEFT_RANKS, LEFT_TO_RETURN
from tests.cluster.agent.conftest import AgentProcess
from tests.cluster.agent.coordinator import Coordinator
from tests.waiting import until

SPAWNER_TIMEOUT_SECONDS = 40.0


async def test_the_credential_is_private_and_makes_the_token_needless(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    stored = agent.data / "credential.json"
    assert stored.stat().st_mode & 0o777 == 0o600
    assert json.loads(stored.read_text())["node_id"] == "node-1"
    await agent.end()
    agent.start(token="")
    await coordinator.until(lambda c: len(c.hellos) == 2)
    assert coordinator.hellos[0].boot_id != coordinator.hellos[1].boot_id
    await agent.end()


async def test_a_used_token_ends_the_agent_with_the_servers_words(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start(token="used")
    assert await agent.exited() == 1
    assert "join token already used" in agent.log


async def test_without_token_and_credential_it_says_how_to_get_one(agent: AgentProcess) -> None:
    agent.start(token="")
    assert await agent.exited() == 1
    assert "--token" in agent.log


async def test_a_second_agent_on_the_same_data_is_turned_away(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    second = AgentProcess(agent.data, coordinator.url)
    second.start()
    assert await second.exited() == 1
    assert "another agent uses" in agent.log
    await agent.end()


async def test_waits_for_a_coordinator_that_comes_later(agent: AgentProcess, coordinator: Coordinator) -> None:
    await coordinator.stop()
    agent.start()
    await until(lambda: "no answer from" in agent.log, "a line about the missing coordinator", seconds=SPAWNER_TIMEOUT_SECONDS)
    await coordinator.start()
    await coordinator.until(lambda c: c.hellos)
    await agent.end()


async def test_torch_is_loaded_beside_joining_so_that_the_first_rank_need_not_wait_for_it(
    agent: AgentProcess, coordinator: Coordinator
) -> None:
    await coordinator.stop()
    agent.start()
    await until(AgentFolder(agent.data).spawner("").socket.exists, "a spawner that takes orders", seconds=SPAWNER_TIMEOUT_SECONDS)
    pid = agent.spawner().pid
    await coordinator.start()
    await coordinator.until(lambda c: c.hellos)
    assert agent.spawner().pid == pid
    await agent.end()


@pytest.mark.parametrize("loading", [True, False], ids=["loading", "waiting"])
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130), (signal.SIGHUP, LEFT_RANKS), (signal.SIGUSR1, LEFT_TO_RETURN)]
)
async def test_an_agent_that_has_not_joined_leaves_nothing_when_it_is_stopped(
    agent: AgentProcess, coordinator: Coordinator, number: signal.Signals, code: int, loading: bool
) -> None:
    """Its spawner is there first, and loads torch while the agent itself is still loading.

    An interrupt in the middle of an import can end Python by the signal itself: a shell has 130 for both."""
    await coordinator.stop()
    agent.start("--returns")
    await until(lambda: agent.leaders("paceline.cluster.agent.spawner"), "its spawner", seconds=SPAWNER_TIMEOUT_SECONDS)
    if not loading:
        await until(lambda: "no answer from" in agent.log, "a line about the missing coordinator", seconds=SPAWNER_TIMEOUT_SECONDS)
    ended = await agent.end(number)
    assert (128 - ended if ended == -signal.SIGINT else ended) == code
    assert agent.processes() == []
