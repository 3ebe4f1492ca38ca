"""Background processes: only our own are ever stopped, and none of those is left."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from paceline.cli.local.layout import Layout
from paceline.cli.local.processes import (
    BackgroundProgram,
    Record,
    alive,
    find,
    log_tail,
    marked,
    recorded,
    start,
    stop,
    sweep,
)
from tests.waiting import wait_until

SLEEPER = "import time; time.sleep(600)"
#: Starts a grandchild in a session of its own, as an agent does with its spawner, and says its pid.
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEPER!r}], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
WAIT_S = 20


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[Layout]:
    layout = Layout.at(tmp_path / "data")
    yield layout
    stop(layout, recorded(layout))
    sweep(layout)


def python(name: str, code: str) -> BackgroundProgram:
    return BackgroundProgram(name, ["-c", code], {})


def test_started_process_is_recorded_and_stopped(layout: Layout) -> None:
    record = start(layout, python("one", SLEEPER))
    assert alive(layout, "one")
    stop(layout, [record])
    assert find(record) is None
    assert recorded(layout) == []


def test_a_process_whose_pid_was_that_of_another_one_before_is_found_and_ended(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil kept the other one's object from an earlier look: `down` left the process, since it took it for one that has ended."""
    record = start(layout, python("one", SLEEPER))
    earlier = psutil.Process(record.pid)
    monkeypatch.setattr(earlier, "_ident", (record.pid, 0.0))
    monkeypatch.setattr(psutil, "_pmap", {record.pid: earlier})
    assert [each.pid for each in marked(layout)] == [record.pid]
    monkeypatch.setattr(psutil, "_pmap", {record.pid: earlier})
    assert sweep(layout) == 1
    assert find(record) is None


def test_a_started_process_is_told_its_log_which_it_keeps_small(layout: Layout) -> None:
    record = start(layout, python("one", SLEEPER))
    assert psutil.Process(record.pid).environ()["PACELINE_LOG_FILE"] == str(layout.log("one"))


def test_pid_of_somebody_else_is_left_alone(layout: Layout) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SLEEPER])
    try:
        reused = Record("one", stranger.pid, psutil.Process(stranger.pid).create_time() - 100, [])
        layout.run.mkdir(parents=True)
        layout.record("one").write_bytes(msgspec.json.encode(reused))
        assert not alive(layout, "one")
        stop(layout, recorded(layout))
        assert stranger.poll() is None
        assert recorded(layout) == []
    finally:
        stranger.kill()
        stranger.wait()


def test_a_step_of_the_clock_makes_no_stranger_of_a_process(layout: Layout) -> None:
    """Start times by the clock move with it: `down` then gave ranks no time to save, and `up` started a second coordinator."""
    record = start(layout, python("one", SLEEPER))
    assert find(msgspec.structs.replace(record, started_at=record.started_at - 3600)) is not None
    assert find(msgspec.structs.replace(record, birth=f"{record.birth}0")) is None


def test_a_record_of_an_older_version_is_found_by_its_time(layout: Layout) -> None:
    record = start(layout, python("one", SLEEPER))
    older = {key: value for key, value in msgspec.to_builtins(record).items() if key != "birth"}
    layout.record("one").write_bytes(msgspec.json.encode(older))
    assert alive(layout, "one")


def test_process_that_ignores_sigterm_is_killed(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.cli.local.processes.STOP_GRACE_S", 0.2)
    record = start(layout, python("deaf", DEAF))
    wait_until(lambda: "deaf" in log_tail(layout, "deaf"), "its first line", seconds=WAIT_S)
    stop(layout, [record])
    assert find(record) is None


def test_process_that_ignores_sigterm_is_stopped_by_a_signal_of_its_own(layout: Layout) -> None:
    record = start(layout, BackgroundProgram("deaf", ["-c", DEAF], {}, ends_on=signal.SIGINT))
    wait_until(lambda: "deaf" in log_tail(layout, "deaf"), "its first line", seconds=WAIT_S)
    psutil.Process(record.pid).terminate()
    assert find(record) is not None
    stop(layout, recorded(layout))
    assert find(record) is None
    assert "KeyboardInterrupt" in log_tail(layout, "deaf"), "it was killed"


def test_sweep_ends_what_a_dead_parent_left_in_another_session(layout: Layout) -> None:
    record = start(layout, python("parent", PARENT))
    wait_until(lambda: layout.log("parent").read_text().strip(), "its first line", seconds=WAIT_S)
    grandchild = psutil.Process(int(layout.log("parent").read_text()))
    parent = find(record)
    assert parent is not None
    parent.kill()
    parent.wait(WAIT_S)
    assert [process.pid for process in marked(layout)] == [grandchild.pid]
    assert sweep(layout) == 1
    wait_until(lambda: not grandchild.is_running(), "the end of the grandchild", seconds=WAIT_S)


def test_sweep_of_one_stack_spares_another(layout: Layout, tmp_path: Path) -> None:
    other = Layout.at(tmp_path / "other")
    record = start(other, python("one", SLEEPER))
    assert sweep(layout) == 0
    assert find(record) is not None
    stop(other, [record])
