"""An agent until it serves: its token, its credential, a coordinator that is not there yet, and a spawner that loads torch meanwhile."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.main import LEFT_RANKS, LEFT_TO_RETURN
from tests.cluster.agent.conftest import EXIT_TIMEOUT_SECONDS, ROOT, AgentProcess
from tests.cluster.agent.coordinator import Coordinator
from tests.processes import is_pid_alive
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
    """Its spawner is there first, and loads torch while the agent itself is still loading."""
    await coordinator.stop()
    agent.start("--returns")
    await until(lambda: agent.leaders("paceline.cluster.agent.spawner"), "its spawner", seconds=SPAWNER_TIMEOUT_SECONDS)
    if not loading:
        await until(lambda: "no answer from" in agent.log, "a line about the missing coordinator", seconds=SPAWNER_TIMEOUT_SECONDS)
    assert await agent.end(number) == code
    assert agent.processes() == []


#: An agent that is told to end when it has forked its spawner and does not know that process yet, or in a weak reference's callback.
TOLD_AT_A_BAD_MOMENT = """
import os, signal, subprocess, sys, weakref
from pathlib import Path
from paceline.cluster.agent import supervisor
from paceline.cluster.agent.card_locks import CardLocks
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.main import leave_when_told
from paceline.cluster.agent.notices import NoticeWatch
from paceline.cluster.agent.settings import read_settings

def end(*_):
    os.kill(os.getpid(), signal.SIGTERM)

def start(*_):
    process = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
    print(process.pid, flush=True)
    if sys.argv[1] == "start":
        end()
    return process

supervisor.start_spawner = start
data = Path(sys.argv[2])
settings = read_settings(["--server", "http://127.0.0.1:9", "--data", str(data)])
with supervisor.EarlySpawner() as spawner:
    leave_when_told(NoticeWatch(settings.notices), spawner)
    spawner.start(settings, AgentFolder(data), CardLocks(data))
    referred = {1}
    reference = weakref.ref(referred, end)
    del referred
    os._exit(77)
"""


@pytest.mark.parametrize("moment", ["start", "callback"])
def test_a_signal_at_a_bad_moment_ends_the_agent_with_its_spawner_all_the_same(tmp_path: Path, moment: str) -> None:
    """The spawner stayed, with its cards; or the signal was lost, and the agent went on to join."""
    command = [sys.executable, "-c", TOLD_AT_A_BAD_MOMENT, moment, str(tmp_path)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, cwd=ROOT, timeout=EXIT_TIMEOUT_SECONDS, check=False)
    pid = int(ended.stdout)
    try:
        assert ended.returncode == 0
        assert not is_pid_alive(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
