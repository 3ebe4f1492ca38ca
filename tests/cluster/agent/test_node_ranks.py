"""Ranks as real processes: how they end, that nothing of them stays, and that no crash of ours is felt by them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import signal
import sys
import time
from pathlib import Path

import psutil
import pytest

from paceline.cluster.agent.upload.output_gaps import BURST_BYTES, FINAL_BYTES, SEND_BYTES_PER_SECOND
from paceline.cluster.states import RankState
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, printed, running, script_job, training_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.processes import is_pid_alive
from tests.standstills import standstills
from tests.waiting import until

GONE_TIMEOUT_SECONDS = 30.0


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(GONE_TIMEOUT_SECONDS):
        while is_pid_alive(pid):  # noqa: ASYNC110 - not our child
            await asyncio.sleep(0.02)


async def test_what_a_script_has_saved_stays_on_its_node_until_its_job_has_ended(agent: AgentProcess, coordinator: Coordinator) -> None:
    jobs, weeks_ago = agent.data / "jobs", time.time() - 21 * 24 * 3600
    for name in ("paused", "ended"):
        (jobs / name / "work").mkdir(parents=True)
        os.utime(jobs / name, (weeks_ago, weeks_ago))
    coordinator.ended_jobs = {"ended"}
    agent.start()
    await until(lambda: not (jobs / "ended" / "work").exists(), "what the ended job has left is removed")
    assert (jobs / "paused" / "work").is_dir()
    assert await agent.end() == 0


async def test_a_killed_agents_successor_adopts_everything(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    adopted = tmp_path / "adopted"
    agent.start()
    spec = training_job(steps=150, wait_for=adopted)
    await coordinator.desire(assignment("job", world("job", 0, 2), world("job", 1, 2), spec=spec))
    await coordinator.until(lambda c: printed("job", 11, 0)(c) and printed("job", 11, 1)(c))
    pids = [coordinator.rank("job", rank).pid for rank in (0, 1)]  # type: ignore[union-attr]
    spawner = agent.spawner().pid
    await agent.end(signal.SIGKILL)
    agent.start()
    await coordinator.until(lambda c: len(c.hellos) == 2 and running("job", 1)(c))
    assert [coordinator.rank("job", rank).pid for rank in (0, 1)] == pids  # type: ignore[union-attr]
    assert agent.spawner().pid == spawner
    adopted.touch()
    await coordinator.until(lambda c: drained("job", 0)(c) and drained("job", 1)(c))
    for rank in (0, 1):
        received = coordinator.of("job", rank)
        assert [record.step for record in received.streams["metrics"]] == list(range(1, 151))
        assert received.text == [f"step {step}" for step in range(1, 151)]
    await agent.end()


async def test_exits_without_an_agent_are_reported_by_the_next_one(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    agent_is_gone = tmp_path / "gone"
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job(steps=20, wait_for=agent_is_gone)))
    await coordinator.until(running("job"))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    assert pid
    await agent.end(signal.SIGKILL)
    agent_is_gone.touch()
    await until_gone(pid)
    agent.start()
    await coordinator.until(lambda c: len(c.hellos) == 2 and drained("job")(c))
    rank = coordinator.rank("job")
    assert rank is not None
    assert (rank.pid, rank.outcome, rank.exit_code, rank.step) == (pid, "completed", 0, 20)
    assert len(coordinator.of("job").streams["metrics"]) == 20
    await agent.end()


async def test_a_coordinator_that_was_away_misses_nothing(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job(steps=100)))
    await coordinator.until(printed("job", 11))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    await coordinator.stop()
    await coordinator.start()
    await coordinator.until(drained("job"))
    rank = coordinator.rank("job")
    assert rank is not None
    assert (rank.pid, rank.outcome) == (pid, "completed")
    assert [record.step for record in coordinator.of("job").streams["metrics"]] == list(range(1, 101))
    await agent.end()


async def test_cancel_takes_under_five_seconds_even_if_sigterm_is_ignored(agent: AgentProcess, coordinator: Coordinator) -> None:
    spec = training_job(ignore_sigterm=1, children=2)
    agent.start()
    await coordinator.desire(assignment("job", spec=spec))
    await coordinator.until(lambda c: len(c.of("job").text) > 3)
    children = [int(line.split()[1]) for line in coordinator.of("job").text if line.startswith("child")]
    asked = time.monotonic()
    await coordinator.desire(assignment("job", spec=spec, action="stop", grace=1.0))
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.STOPPING)
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.EXITED)
    assert time.monotonic() - asked < 5.0
    rank = coordinator.rank("job")
    assert rank is not None
    assert (rank.exit_code, rank.signal, rank.outcome) == (None, "SIGKILL", "failed")
    for child in children:
        await until_gone(child)
    await agent.end()


async def test_the_kill_follows_even_if_the_agent_dies_first(agent: AgentProcess, coordinator: Coordinator) -> None:
    spec = training_job(ignore_sigterm=1)
    agent.start()
    await coordinator.desire(assignment("job", spec=spec))
    await coordinator.until(running("job"))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    assert pid
    await coordinator.desire(assignment("job", spec=spec, action="stop", grace=1.0))
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.STOPPING)
    await agent.end(signal.SIGKILL)
    await until_gone(pid)


async def test_ranks_no_longer_desired_are_ended_and_forgotten(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job"))
    await coordinator.until(running("job"))
    await coordinator.desire()
    await coordinator.until(lambda c: c.rank("job") is None and c.observed.revision == c.desired.revision)  # type: ignore[union-attr]
    folder = agent.data / "jobs" / "job" / "g1" / "rank0"
    assert (folder / "output.log").exists()  # the last generation's, for a day
    assert not (folder / "metrics.spool").exists()
    await agent.end()


async def test_a_crashing_rank_tells_why_in_its_own_words(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job(crash_at=3, children=1)))
    await coordinator.until(drained("job"))
    rank = coordinator.rank("job")
    assert rank is not None
    assert rank.failure is not None
    assert (rank.failure.kind, rank.failure.exception, rank.failure.step) == ("exception", "RuntimeError", 3)
    assert rank.failure.last_lines[-1] == "step 3"
    assert rank.exit_code == 1
    await until_gone(int(coordinator.of("job").text[0].split()[1]))
    await agent.end()


async def test_a_rank_killed_from_outside_is_reported_by_its_signal(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job"))
    await coordinator.until(printed("job", 4))
    os.kill(coordinator.rank("job").pid, signal.SIGKILL)  # type: ignore[union-attr, arg-type]
    await coordinator.until(drained("job"))
    rank = coordinator.rank("job")
    assert rank is not None
    assert rank.failure is not None
    assert (rank.signal, rank.exit_code, rank.failure.kind, rank.failure.message) == ("SIGKILL", None, "signal", "killed by SIGKILL")
    await agent.end()


async def test_a_rank_that_is_stopped_is_reported_at_once_and_again_when_it_goes_on(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", world("job"), spec=training_job()))
    await coordinator.until(running("job"))
    pid = coordinator.rank("job", 0).pid  # type: ignore[union-attr]
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    await coordinator.until(lambda c: c.rank("job", 0).suspended)  # type: ignore[union-attr]
    os.kill(pid, signal.SIGCONT)
    await coordinator.until(lambda c: not c.rank("job", 0).suspended)  # type: ignore[union-attr]


async def test_what_a_rank_says_of_its_stall_outlives_its_agent(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", world("job"), spec=training_job(stall=1)))
    await coordinator.until(lambda c: (seen := c.rank("job", 0)) and seen.stall is not None and seen.stall.phase == "exchange")
    await agent.end(signal.SIGKILL)
    agent.start()
    await coordinator.until(lambda c: len(c.hellos) == 2 and (seen := c.rank("job", 0)) and seen.stall is not None)
    await agent.end(signal.SIGKILL)


async def test_a_spawners_death_is_its_ranks_death_and_a_new_one_serves_the_next_generation(
    agent: AgentProcess, coordinator: Coordinator
) -> None:
    """Of a rank's children the programs are known by the rank's folder in their variables, the forks by the agent's data folder in the spawner's."""
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job(children=1, fork=1)))
    await coordinator.until(printed("job", 4))
    pid, children = coordinator.rank("job").pid, [int(line.split()[1]) for line in coordinator.of("job").text[:2]]  # type: ignore[union-attr]
    assert pid
    agent.spawner().kill()
    await coordinator.until(drained("job"))
    assert coordinator.rank("job").signal == "SIGKILL"  # type: ignore[union-attr]
    for each in (pid, *children):
        await until_gone(each)
    await coordinator.desire(assignment("job", world("job", generation=2), spec=training_job(steps=3)))
    await coordinator.until(drained("job", generation=2))
    assert coordinator.rank("job", generation=2).outcome == "completed"  # type: ignore[union-attr]
    await until(lambda: not (agent.data / "jobs" / "job" / "g1").exists(), "the removal of the first generation's folder")
    await agent.end()


async def test_ranks_without_any_agent_end_after_a_while(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start("--orphan-seconds", "1")
    await coordinator.desire(assignment("job"))
    await coordinator.until(running("job"))
    pid = coordinator.rank("job").pid  # type: ignore[union-attr]
    assert pid
    await agent.end(signal.SIGKILL)
    await until_gone(pid)
    await until(lambda: not agent.processes(), "the end of all processes", seconds=GONE_TIMEOUT_SECONDS)


async def test_ranks_may_wait_months_for_an_agent(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start("--orphan-seconds", "1e7")
    await coordinator.desire(assignment("job", spec=training_job(steps=3)))
    await coordinator.until(drained("job"))
    assert coordinator.rank("job").outcome == "completed"  # type: ignore[union-attr]
    await agent.end()


async def test_a_new_generation_waits_for_the_slot(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", spec=training_job(ignore_sigterm=1), grace=1.0))
    await coordinator.until(running("job"))
    old = coordinator.rank("job").pid  # type: ignore[union-attr]
    assert old
    await coordinator.desire(assignment("job", world("job", generation=2), spec=training_job(steps=3)))
    await coordinator.until(lambda c: c.rank("job", generation=2))
    assert coordinator.rank("job", generation=2).state == RankState.ASSIGNED  # type: ignore[union-attr]
    await coordinator.until(drained("job", generation=2))
    assert not psutil.pid_exists(old)
    await agent.end()


async def test_stop_before_start_is_reported_as_exited(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start()
    await coordinator.desire(assignment("job", action="stop"))
    await coordinator.until(lambda c: (seen := c.rank("job")) and seen.state == RankState.EXITED and seen.drained)
    await agent.end()


SCRIPT = """
import os, socket, sys
rank, port = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"])
names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR TORCHELASTIC_RESTART_COUNT"
print(*[os.environ[name] for name in names.split()], sys.argv[1])
if rank == 0:
    with socket.create_server(("127.0.0.1", port)) as server:
        server.accept()[0].sendall(b"met")
else:
    while True:
        try:
            with socket.create_connection((os.environ["MASTER_ADDR"], port)) as peer:
                print(peer.recv(3).decode())
                break
        except ConnectionRefusedError:
            pass
sys.exit(7 * rank)
"""


async def test_commands_get_torchruns_variables_and_a_port_to_meet_on(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path
) -> None:
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    port = coordinator.hellos[0].store_port
    worlds = [world("job", rank, 2, generation=3, restarts=1, store_port=port) for rank in (0, 1)]
    spec = script_job(tmp_path / "train.py", SCRIPT, slots=2)
    command = [sys.executable, str(tmp_path / "train.py"), "argument"]
    await coordinator.desire(assignment("job", *worlds, spec=spec | {"script": {"command": command}}))
    await coordinator.until(lambda c: drained("job", 0, 3)(c) and drained("job", 1, 3)(c))
    assert coordinator.of("job", 0, 3).text == ["0 2 0 2 0 127.0.0.1 1 argument"]
    assert coordinator.of("job", 1, 3).text == ["1 2 1 2 0 127.0.0.1 1 argument", "met"]
    first, second = coordinator.rank("job", 0, 3), coordinator.rank("job", 1, 3)
    assert first is not None
    assert second is not None
    assert (first.outcome, first.exit_code) == ("completed", 0)
    assert (second.outcome, second.exit_code) == ("failed", 7)
    assert second.failure is not None
    assert (second.failure.kind, second.failure.message) == ("exit", "exited with code 7")
    await agent.end()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"script": {"path": "missing.py"}}, "script.path=missing.py: no such file"),
        ({"script": {"path": "/nowhere.py"}}, "script.path=/nowhere.py: no such file on this node; put it there, or send its folder along"),
        ({"environment": {"working_directory": "/nowhere/at/all"}}, "environment.working_directory=/nowhere/at/all"),
    ],
)
async def test_what_is_missing_on_the_node_is_named(
    agent: AgentProcess, coordinator: Coordinator, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    spec = script_job(tmp_path / "train.py", "") | change
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=spec))
    await coordinator.until(drained("job"))
    rank = coordinator.rank("job")
    assert rank is not None
    assert rank.failure is not None
    assert rank.failure.kind == "invalid_input"
    assert message in rank.failure.message
    await agent.end()


async def test_output_arrives_line_by_line_with_levels(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    source = "import sys, time\nprint('WARNING: low disk')\nprint('no newline', end='', flush=True)\ntime.sleep(600)\n"
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    spec = script_job(tmp_path / "train.py", source)
    await coordinator.desire(assignment("job", world("job", store_port=coordinator.hellos[0].store_port), spec=spec))
    await coordinator.until(lambda c: len(c.of("job").text) == 2)
    lines = coordinator.of("job").streams["logs"]
    assert [(line.level, line.text) for line in lines] == [("warning", "WARNING: low disk"), ("info", "no newline")]
    with contextlib.suppress(psutil.NoSuchProcess):
        await agent.end()


FLOOD = """
import os, time
block = b"".join(b"flood %09d %s\\n" % (n, b"x" * 100) for n in range(10_000))
written, end = 0, time.monotonic() + 1
while time.monotonic() < end or written < 64 << 20:
    written += os.write(1, block)
print("the end")
"""


async def test_a_rank_that_prints_all_it_can_slows_only_itself(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    agent.start("--output-cap", "16MiB")
    await coordinator.until(lambda c: c.hellos)
    flood = assignment("flood", world("flood", store_port=coordinator.hellos[0].store_port), spec=script_job(tmp_path / "f.py", FLOOD))
    start = time.monotonic()
    with standstills() as longest:
        await coordinator.desire(flood, assignment("beside", world("beside", slot=1), spec=training_job(step_seconds=0.05)))
        await coordinator.until(drained("flood"))
        delays = [time.time() - record.time for record in coordinator.of("beside").streams["metrics"][-1:]]
        at_rate, stood_still = math.ceil(time.monotonic() - start) * SEND_BYTES_PER_SECOND, longest()
    output = agent.data / "jobs" / "flood" / "g1" / "rank0" / "output.log"
    flooded, text = output.stat(), coordinator.of("flood").text
    print(f"{flooded.st_size >> 20} MiB printed, {flooded.st_blocks >> 11} MiB kept, {len(text)} lines sent")
    assert flooded.st_size > 48 << 20
    assert flooded.st_blocks * 512 < flooded.st_size / 2
    at_first_look = max(16 << 20, flooded.st_size // 20)  # the first look comes within a second of the first byte
    assert sum(map(len, text)) < at_first_look + BURST_BYTES + FINAL_BYTES + at_rate
    assert (text[0][:15], text[-1]) == ("flood 000000000", "the end")
    assert any("bytes of output are left out here" in line for line in text)
    times = [beat.time for beat in coordinator.heartbeats]
    assert (
        max(later - earlier for earlier, later in itertools.pairwise(times)) < 3.0 + stood_still
    )  # every 0.5 s, where the machine is free
    assert max(delays) < 3.0 + stood_still
    await agent.end()
