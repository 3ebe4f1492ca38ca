"""An agent hears of its machine's end by the clock, a signal, a command or a file, and leaves once its ranks have gone elsewhere."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.agent.notices import LAST_SECONDS, NoticeSettings, NoticeWatch
from paceline.cluster.states import RankState
from tests.cluster.agent.conftest import AgentProcess, assignment, drained, printed, script_job, training_job, world
from tests.cluster.agent.coordinator import Coordinator
from tests.waiting import until


def watch(**settings: Any) -> NoticeWatch:
    return NoticeWatch(NoticeSettings(**settings))


async def noticed(found: NoticeWatch) -> None:
    running = asyncio.create_task(found.run())
    try:
        await until(lambda: found.notice is not None, "a notice")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_time_limit_is_told_so_long_before_its_end() -> None:
    early, due = watch(ends_in=3600.0), watch(ends_in=100.0, drain_seconds=120.0)
    early._look_at_clock(early.started_at + 3479)
    assert early.notice is None
    early._look_at_clock(early.started_at + 3480)
    await noticed(due)
    assert early.notice is not None
    assert due.notice is not None
    assert 0 < due.notice.ends_at - time.time() <= 100.0
    assert due.notice.reason == "its time limit ends"


async def test_a_command_says_how_many_seconds_are_left_and_why() -> None:
    script = "print('45 spot interruption'); raise SystemExit(0)"
    found = watch(command=(sys.executable, "-c", script))
    await noticed(found)
    assert found.notice is not None
    assert found.notice.reason.endswith("announced it: spot interruption")
    assert 0 < found.notice.ends_at - time.time() <= 45.0


@pytest.mark.parametrize("command", [("/no/such/program",), (sys.executable, "-c", "raise SystemExit(1)")], ids=["missing", "says-no"])
async def test_a_command_that_fails_is_no_notice(command: tuple[str, ...]) -> None:
    found = watch(command=command)
    await found._ask_command()
    assert found.notice is None


@pytest.mark.parametrize(("text", "seconds"), [("", 120.0), ("nan", 120.0), ("30", 30.0), ("taken away by the cloud", 120.0)])
async def test_a_file_that_appears_is_a_notice(tmp_path: Path, text: str, seconds: float) -> None:
    found = watch(file=tmp_path / "notice")
    found._look_at_file()
    assert found.notice is None
    (tmp_path / "notice").write_text(text)
    found._look_at_file()
    first = found.notice
    found._look_at_file()
    assert first is not None
    assert found.notice is first
    assert seconds - 30 < first.ends_at - time.time() <= seconds


def test_the_earliest_end_counts_and_sigterm_ends_the_ranks_only_the_second_time() -> None:
    told: list[float] = []
    found = watch(ends_in=1000.0, drain_seconds=100.0, drain_on_term=20.0)
    found.on_notice = lambda: told.append(found.notice.ends_at)  # type: ignore[union-attr]
    found.on_usr1()
    assert not found.on_term()
    assert not found.on_term()  # at once: the same one, by way of the shell
    found.on_usr1()
    assert len(told) == 2
    assert told[1] < told[0]
    found._signalled_at = time.monotonic() - 3.0
    assert found.on_term()
    assert watch().on_term()


@pytest.mark.parametrize("step", [-7200.0, 7200.0], ids=["set back", "set forward"])
async def test_a_machine_whose_clock_is_set_ends_when_it_was_to(step: float) -> None:
    """Set back, as after a boot with the hardware clock in local time, it was taken away undrained; set forward, all ranks were ended at once."""
    limited, noticed_before = watch(ends_in=14400.0), watch()
    noticed_before.on_usr1()
    for seconds, is_due in ((14270, False), (14281, True)):
        limited._look_at_clock(limited.started_at + seconds)
        assert (limited.notice is not None) is is_due
    for found, left in ((limited, 14400.0), (noticed_before, 120.0)):
        found.wall_clock = lambda: time.time() + step
        assert found.ends_at is not None
        assert left - 60 < found.ends_at - step - time.time() <= left
    waiting = asyncio.create_task(noticed_before.until_last_seconds())
    ended, _ = await asyncio.wait({waiting}, timeout=0.1)
    waiting.cancel()
    assert not ended


async def test_the_last_seconds_are_waited_for_without_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent looked five times a second for as long as it lived."""

    async def no_sleep(seconds: float) -> None:
        raise AssertionError(f"it looks again after {seconds} s")

    found = watch()
    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    waiting = asyncio.create_task(found.until_last_seconds())
    for end in (300.0, LAST_SECONDS + 0.05):  # the second is earlier, and seen at once
        ended, _ = await asyncio.wait({waiting}, timeout=0.02)
        assert not ended
        found._take(time.monotonic() + end, "it is to end")
    await asyncio.wait_for(waiting, 5.0)


async def test_sigusr1_drains_the_node_while_its_ranks_go_on(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start("--drain-seconds", "300", "--returns")
    await coordinator.desire(assignment("job", spec=training_job(steps=0)))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.state == RankState.RUNNING)
    assert agent.process is not None
    agent.process.send_signal(signal.SIGUSR1)
    await coordinator.until(lambda c: c.notices)
    (notice,) = coordinator.notices
    assert notice.returns
    assert 200 < notice.ends_at - time.time() <= 300
    assert coordinator.rank("job").state == RankState.RUNNING  # type: ignore[union-attr]
    await coordinator.desire()
    await coordinator.until(lambda c: c.rank("job") is None)
    await coordinator.desire(leave=True)
    assert await agent.exited() == 3
    assert json.loads((agent.data / "credential.json").read_text())["node_id"] == "node-1"


async def test_sigterm_to_every_process_of_the_node_is_a_drain(agent: AgentProcess, coordinator: Coordinator) -> None:
    """Slurm's scancel signals the whole job: neither spawner nor ranks may die before the drain."""
    agent.start("--drain-on-term", "300")
    await coordinator.desire(assignment("job", spec=training_job(steps=0)))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.state == RankState.RUNNING)
    step = coordinator.rank("job").step  # type: ignore[union-attr]
    for process in agent.processes():
        os.kill(process.pid, signal.SIGTERM)
    await coordinator.until(lambda c: c.notices)
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.step > step + 5)
    await coordinator.desire(assignment("job", spec=training_job(steps=0), action="stop"))
    await coordinator.until(lambda c: (rank := c.rank("job")) and rank.state == RankState.EXITED)
    await coordinator.desire(leave=True)
    assert await agent.exited() == 0
    assert agent.processes() == []


#: Ends at SIGTERM, at once or when it has saved for a moment.
DIES = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
SAVES = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), sys.exit(0)))\n" + DIES


async def test_scripts_that_end_with_their_node_have_been_told_to(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    """One of two nodes of a script that Slurm cancelled was a crash, or a completion where it saves at SIGTERM."""
    agent.start("--drain-on-term", "300")
    await coordinator.until(lambda c: c.hellos)
    port, jobs = coordinator.hellos[0].store_port, {"dies": DIES, "saves": SAVES}
    specs = {name: script_job(tmp_path / f"{name}.py", source) for name, source in jobs.items()}
    places = {name: world(name, slot=slot, store_port=port) for slot, name in enumerate(jobs)}
    await coordinator.desire(*(assignment(name, places[name], spec=specs[name]) for name in jobs))
    for name in jobs:
        await coordinator.until(lambda c, name=name: "ready" in c.of(name).text)  # type: ignore[misc]
    spawner = agent.spawner()
    for process in sorted(agent.processes(), key=lambda each: each == spawner):  # the spawner last: then ranks have ended before
        os.kill(process.pid, signal.SIGTERM)
    for name in jobs:
        await coordinator.until(drained(name))
    died, saved = (coordinator.rank(name) for name in jobs)
    assert (died.failure.kind, died.failure.ordered) == ("signal", True)  # type: ignore[union-attr]
    assert saved.outcome == "paused"  # type: ignore[union-attr]


async def test_a_script_that_somebody_else_has_killed_has_crashed(agent: AgentProcess, coordinator: Coordinator, tmp_path: Path) -> None:
    agent.start("--drain-on-term", "300")
    await coordinator.until(lambda c: c.hellos)
    place = world("dies", store_port=coordinator.hellos[0].store_port)
    await coordinator.desire(assignment("dies", place, spec=script_job(tmp_path / "dies.py", DIES)))
    await coordinator.until(printed("dies", 1))
    os.kill(coordinator.rank("dies").pid, signal.SIGTERM)  # type: ignore[union-attr, arg-type]
    await coordinator.until(drained("dies"))
    assert not coordinator.rank("dies").failure.ordered  # type: ignore[union-attr]


async def test_what_has_not_gone_by_the_end_is_ended(agent: AgentProcess, coordinator: Coordinator) -> None:
    agent.start("--ends-in", "6")  # five of them are kept for the end itself
    await coordinator.desire(assignment("job", spec=training_job(steps=0)))
    assert await agent.exited() == 0
    assert agent.processes() == []


async def test_a_coordinator_that_knows_no_notices_is_told_none(agent: AgentProcess, coordinator: Coordinator) -> None:
    coordinator.takes_notices = False
    agent.start()
    await coordinator.until(lambda c: c.hellos)
    assert agent.process is not None
    agent.process.send_signal(signal.SIGUSR1)
    await until(lambda: "a notice: SIGUSR1" in agent.log, "a line about the notice")
    beats = len(coordinator.heartbeats)
    await coordinator.until(lambda c: len(c.heartbeats) > beats + 1)
    assert coordinator.notices == []
    assert await agent.end() == 0
