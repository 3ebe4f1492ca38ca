"""What an agent looks after besides its ranks: its logs, and that no work of its own stays undone."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from paceline.cluster.agent import isolation
from paceline.cluster.agent.vitals import RankHeartbeats
from paceline.distributed.store_server import StoreServer
from paceline.monitoring.host import HostSampler
from paceline.monitoring.log_file import MAX_BYTES
from tests.cluster.agent.conftest import AgentProcess
from tests.cluster.agent.coordinator import Coordinator
from tests.cluster.agent.test_main import make_agent
from tests.waiting import until


async def test_its_own_log_and_the_spawners_are_cut(agent: AgentProcess, coordinator: Coordinator) -> None:
    logs = [agent.data.parent / "agent.txt", agent.data / "spawner.txt"]
    agent.data.mkdir()
    for log in logs:
        log.touch()
        os.truncate(log, MAX_BYTES + 1)
    agent.environment["PACELINE_LOG_FILE"] = str(logs[0])
    agent.start()
    for log in logs:
        await until(Path(f"{log}.1").exists, f"the cut of {log.name}")
    await coordinator.until(lambda c: c.hellos)
    await agent.end()
    assert all(log.stat().st_size < MAX_BYTES for log in logs)


def may_be_spared() -> bool:
    """Whether this user may have a process spared, which a container may forbid to root too."""
    command = ["sh", "-c", "echo -900 > /proc/self/oom_score_adj"]
    return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0


async def test_the_memory_killer_is_asked_to_spare_agent_and_spawner(agent: AgentProcess, coordinator: Coordinator) -> None:
    if not may_be_spared():
        pytest.skip("this user may have no process spared")
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    assert agent.process is not None
    scores = [Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in (agent.process.pid, agent.spawner().pid)]
    assert scores == ["-900", "-900"]
    await agent.end()


async def test_a_work_that_raises_is_started_over_and_ends_no_agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "FIRST_RESTART_SECONDS", 0.01)
    vitals = RankHeartbeats(HostSampler(tmp_path, 0.0), None, "no GPU")
    agent, starts, abandon = make_agent(tmp_path, StoreServer(), vitals), list[int](), asyncio.Event()

    async def work() -> None:
        starts.append(len(starts))
        if len(starts) == 1:
            raise RuntimeError("planned")
        await asyncio.Event().wait()

    monkeypatch.setattr(agent._ranks, "works", lambda: {"a work": work})
    running = asyncio.create_task(agent.run(asyncio.Event(), abandon))
    await until(lambda: len(starts) == 2 or running.done(), "its second start")
    assert not running.done()
    abandon.set()
    await running
    vitals.close()
