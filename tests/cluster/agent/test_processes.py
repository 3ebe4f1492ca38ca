"""Processes of ranks before the kernel's own out-of-memory killer, in a control group that holds an agent, its spawner and two jobs."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.agent.conftest import AgentProcess, assignment, drained, printed, script_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.processes import is_pid_alive
from tests.waiting import wait_until

LIMIT = 384 << 20
KILL_SECONDS = 120.0
NEIGHBOUR = """
import itertools, time
for line in itertools.count():
    print(line, flush=True)
    time.sleep(0.1)
"""
#: Twenty processes that grow alike, so that each is still smaller than the agent and its spawner when the group is full; the rank is ahead of its children.
OFFENDER = """
import os, time
for _ in range(20):
    if os.fork() == 0:
        break
else:
    print("they grow", flush=True)
    ahead = b"x" * (6 << 20)
held = []
while True:
    held.append(b"x" * (1 << 20))
    time.sleep(0.1)
"""


def limited_group() -> Path | None:
    """Make a group with LIMIT, below the root of a hierarchy that controls memory. None where this user or this machine has none."""
    mounts = re.findall(r"^\S+ (\S+) (cgroup2?) (\S+) ", Path("/proc/mounts").read_text(), re.MULTILINE)
    roots = [(Path(path), "memory.max" if kind == "cgroup2" else "memory.limit_in_bytes") for path, kind, _ in mounts]
    for root, limit in roots:
        group = root / f"paceline-test-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            if (group / limit).exists():
                (group / limit).write_text(str(LIMIT))
                return group
            group.rmdir()
    return None


@pytest.fixture
def group() -> Iterator[Path]:
    group = limited_group()
    if group is None:
        pytest.skip("no control group with a limit of memory can be made: that takes root, and a hierarchy that controls memory")
    yield group
    wait_until(lambda: not (group / "cgroup.procs").read_text(), "the end of all in the group", seconds=KILL_SECONDS)
    group.rmdir()


@pytest.mark.timeout(300)
async def test_a_rank_that_fills_the_memory_ends_and_neither_its_spawner_nor_another_job(
    group: Path, agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    """Also where each process of the rank is smaller than the spawner, which all ranks of the node would die with."""
    agent.group = group
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    port = coordinator.hellos[0].store_port
    neighbour = assignment("neighbour", world("neighbour", store_port=port), spec=script_job(tmp_path / "neighbour.py", NEIGHBOUR))
    await coordinator.desire(neighbour)
    await coordinator.until(printed("neighbour", 3), KILL_SECONDS)
    pid, spawner = coordinator.rank("neighbour").pid, agent.spawner()  # type: ignore[union-attr]
    offender = assignment("offender", world("offender", slot=1, store_port=port), spec=script_job(tmp_path / "offender.py", OFFENDER))
    await coordinator.desire(neighbour, offender)
    await coordinator.until(drained("offender"), KILL_SECONDS)
    ended = coordinator.rank("offender")
    assert ended is not None
    assert (ended.signal, ended.failure and ended.failure.kind) == ("SIGKILL", "out_of_memory")
    assert coordinator.of("offender").text == ["they grow"]
    assert agent.process is not None
    assert agent.process.poll() is None
    assert agent.spawner() == spawner
    assert pid is not None
    assert is_pid_alive(pid)
    await coordinator.until(printed("neighbour", len(coordinator.of("neighbour").text) + 3))
    assert coordinator.rank("neighbour").pid == pid  # type: ignore[union-attr]
    await agent.end()
