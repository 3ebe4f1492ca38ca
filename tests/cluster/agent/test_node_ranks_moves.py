"""Processes that take other places: after a fault, for parked ranks, at a step boundary; and agents that die meanwhile."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Literal

import pytest

from paceline.cluster.states import RankState
from paceline.training.link import ProcessIdentity, RankPlace
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, parked, pid_of, printed, running, training_job, world
from tests.cluster.agent.coordinator import Coordinator


def place(generation: int) -> RankPlace:
    return world("job", generation=generation, birth=ProcessIdentity(1, 0))


async def test_a_process_moves_on_to_the_next_generation_and_leaves_nothing_behind(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job(steps=150)))
    await coordinator.until(printed("job", 6))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    await coordinator.desire(assignment("job", place(2), spec=training_job(steps=150)))
    await coordinator.until(drained("job", generation=2))
    rank = coordinator.rank("job", generation=2)
    assert rank is not None
    assert (rank.pid, rank.outcome, rank.step) == (pid, "completed", 150)
    steps = [record.step for generation in (1, 2) for record in coordinator.of("job", 0, generation).streams["metrics"]]
    lines = [line for generation in (1, 2) for line in coordinator.of("job", 0, generation).text]
    assert steps == list(range(1, 151))
    assert lines == [f"step {step}" for step in range(1, 151)]
    await coordinator.until(lambda c: c.rank("job") is None)
    await agent.end()


async def test_a_moved_process_is_adopted_as_what_it_is_now(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job()))
    await coordinator.until(running("job"))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    await coordinator.desire(assignment("job", place(3), spec=training_job()))
    await coordinator.until(running("job", generation=3))
    await agent.end(signal.SIGKILL)
    agent.start()
    await coordinator.until(lambda c: len(c.hellos) == 2 and running("job", generation=3)(c))
    os.kill(pid, signal.SIGKILL)  # type: ignore[arg-type]
    await coordinator.until(drained("job", generation=3))
    rank = coordinator.rank("job", generation=3)
    assert rank is not None
    assert (rank.pid, rank.signal, rank.outcome) == (pid, "SIGKILL", "failed")
    await agent.end()


async def test_a_process_that_dies_before_it_can_move_is_dead_in_its_new_place(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job"))
    await coordinator.until(running("job"))
    first = coordinator.rank("job")
    assert first is not None
    assert first.pid is not None
    os.kill(first.pid, signal.SIGKILL)
    await coordinator.until(drained("job"))
    await coordinator.desire(assignment("job", place(2)))
    await coordinator.until(drained("job", generation=2))
    second = coordinator.rank("job", generation=2)
    assert second is not None
    assert (second.signal, second.pid) == ("SIGKILL", first.pid)
    await agent.end()


async def test_a_parked_rank_waits_through_a_change_of_generation_and_then_takes_a_place(
    agent: AgentProcess, coordinator: Coordinator
) -> None:
    spec = training_job()
    agent.start()
    spare = world("job", 1, 1, parked=True)
    await coordinator.desire(assignment("job", world("job"), spare, spec=spec))
    await coordinator.until(lambda c: running("job")(c) and parked(1, 1)(c))
    pid = pid_of(coordinator, 1, 1)
    still = world("job", 1, 1, generation=2, parked=True, birth=ProcessIdentity(1, 1))
    await coordinator.desire(assignment("job", place(2), still, spec=spec))
    await coordinator.until(lambda c: running("job", generation=2)(c) and parked(1, 2)(c))
    member = world("job", 1, 2, generation=3, birth=ProcessIdentity(1, 1), at_boundary=True)
    await coordinator.desire(
        assignment("job", world("job", 0, 2, generation=3, birth=ProcessIdentity(1, 0), at_boundary=True), member, spec=spec)
    )
    await coordinator.until(running("job", 1, 3))
    assert pid_of(coordinator, 1, 3) == pid
    await coordinator.until(lambda c: c.rank("job", 1, 1) is None and c.rank("job", 1, 2) is None)
    await agent.end()


@pytest.mark.parametrize("action", ["release", "pause"])
async def test_a_parked_rank_that_is_not_needed_ends_and_frees_its_slot(
    agent: AgentProcess, coordinator: Coordinator, action: Literal["release", "pause"]
) -> None:
    agent.start()
    spare = world("job", 1, 1, parked=True)
    await coordinator.desire(assignment("job", spare))
    await coordinator.until(parked(1, 1))
    await coordinator.desire(assignment("job", spare, action=action), assignment("next", world("next", slot=1), spec=training_job(steps=3)))
    await coordinator.until(drained("job", 1))
    rank = coordinator.rank("job", 1)
    assert rank is not None
    assert (rank.outcome, rank.exit_code, rank.failure) == ("released", 0, None)
    await coordinator.until(drained("next"))
    assert coordinator.rank("next").outcome == "completed"  # type: ignore[union-attr]
    await agent.end()


BOUNDARY = 100


def pending(generation: int) -> RankPlace:
    return world("job", generation=generation, birth=ProcessIdentity(1, 0), at_boundary=True)


async def test_a_rank_trains_on_in_its_old_place_until_the_boundary(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    asked, held_at = tmp_path / "asked", BOUNDARY - 10
    spec = training_job(steps=2 * BOUNDARY, boundary=BOUNDARY, wait_for=asked, wait_at=held_at)
    agent.start()
    await coordinator.desire(assignment("job", spec=spec))
    await coordinator.until(running("job"))
    await coordinator.desire(assignment("job", pending(2), spec=spec))
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.MOVED)
    assert coordinator.rank("job", generation=2).state == RankState.ASSIGNED  # type: ignore[union-attr]
    assert len(coordinator.of("job").text) < held_at
    asked.touch()  # it goes on under its old key
    await coordinator.until(drained("job", generation=2))
    steps = [[record.step for record in coordinator.of("job", 0, generation).streams["metrics"]] for generation in (1, 2)]
    assert steps == [list(range(1, BOUNDARY + 1)), list(range(BOUNDARY + 1, 2 * BOUNDARY + 1))]
    await agent.end()


async def test_an_agent_that_dies_while_a_change_is_pending_has_a_successor_that_completes_it(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    adopted = tmp_path / "adopted"
    spec = training_job(steps=2 * BOUNDARY, boundary=BOUNDARY, wait_for=adopted, wait_at=BOUNDARY)
    agent.start()
    await coordinator.desire(assignment("job", spec=spec))
    await coordinator.until(running("job"))
    pid = pid_of(coordinator, 0, 1)
    await coordinator.desire(assignment("job", pending(2), spec=spec))
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.MOVED)
    await agent.end(signal.SIGKILL)
    agent.start()
    await coordinator.until(lambda c: len(c.hellos) == 2 and (seen := c.rank("job")) and seen.state == RankState.MOVED)
    adopted.touch()
    await coordinator.until(drained("job", generation=2))
    assert pid_of(coordinator, 0, 2) == pid
    steps = [record.step for generation in (1, 2) for record in coordinator.of("job", 0, generation).streams["metrics"]]
    assert steps == list(range(1, 2 * BOUNDARY + 1))
    await agent.end()


@pytest.mark.parametrize(("crash_at", "outcome"), [(BOUNDARY, "failed"), (0, "completed")])
async def test_how_a_rank_ended_before_its_boundary_is_told_in_its_own_words_in_its_new_place(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path, crash_at: int, outcome: str
) -> None:
    asked = tmp_path / "asked"
    spec = training_job(steps=BOUNDARY, boundary=10 * BOUNDARY, crash_at=crash_at, wait_for=asked)
    agent.start()
    await coordinator.desire(assignment("job", spec=spec))
    await coordinator.until(running("job"))
    await coordinator.desire(assignment("job", pending(2), spec=spec))
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.MOVED)
    asked.touch()
    await coordinator.until(drained("job", generation=2))
    rank = coordinator.rank("job", generation=2)
    assert rank is not None
    assert (rank.outcome, rank.step) == (outcome, BOUNDARY)
    assert (rank.failure.message if rank.failure else None) == ("planned" if crash_at else None)
    await agent.end()
