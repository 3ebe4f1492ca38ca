"""An agent's whole life against a coordinator that speaks the real protocol: joining, ranks, ends."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from cluster.states import RankState
from tests.cluster.agent.conftest import AgentProcess, assignment, script_job, training_job, world
from tests.cluster.agent.coordinator import Coordinator


async def test_joins_runs_a_rank_to_completion_and_forgets_it(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    await coordinator.desire(assignment("job", spec=training_job(steps=5)))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.drained)
    rank = coordinator.rank("job")
    assert rank is not None
    assert (rank.state, rank.outcome, rank.exit_code, rank.signal, rank.step) == (RankState.EXITED, "completed", 0, None, 5)
    received = coordinator.of("job")
    assert [record.step for record in received.streams["metrics"]] == [1, 2, 3, 4, 5]
    assert received.text == [f"step {step}" for step in range(1, 6)]
    await coordinator.desire()
    await coordinator.until(lambda c: c.rank("job") is None)
    assert await agent.end() == 0
    assert agent.processes() == []
