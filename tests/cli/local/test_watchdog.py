"""What an owner started ends with it, even after kill -9."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from paceline.cli.local.layout import Layout
from paceline.cli.local.processes import marked
from tests.cli.conftest import ROOT
from tests.waiting import wait_until

OWNER = """
import sys, time
from pathlib import Path
from paceline.cli.local.layout import Layout
from paceline.cli.local.processes import BackgroundProgram, start
from paceline.cli.local.watchdog import StackWatchdog

layout = Layout.at(Path(sys.argv[1]))
watchdog = StackWatchdog(layout, forget=sys.argv[2] == "forget")
start(layout, BackgroundProgram("one", ["-c", "import time; time.sleep(600)"], {}))
print("started", flush=True)
if sys.argv[2] == "release":
    watchdog.release()
else:
    time.sleep(600)
"""
WAIT_S = 30


def owner(data: Path, mode: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, str(data), mode], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


def wait_until_nothing_is_left(layout: Layout) -> None:
    wait_until(lambda: marked(layout) == [], "the end of all processes", seconds=WAIT_S)


def test_kill_9_of_the_owner_leaves_nothing(tmp_path: Path) -> None:
    process = owner(tmp_path, "stay")
    assert marked(Layout.at(tmp_path))
    process.kill()
    process.communicate(timeout=WAIT_S)
    wait_until_nothing_is_left(Layout.at(tmp_path))


def test_release_returns_when_everything_has_ended(tmp_path: Path) -> None:
    process = owner(tmp_path, "release")
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert marked(Layout.at(tmp_path)) == []


def test_a_stack_that_is_to_be_forgotten_leaves_no_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    process = owner(data, "forget")
    process.kill()
    process.communicate(timeout=WAIT_S)
    wait_until(lambda: not data.exists(), "the removal of its folder", seconds=WAIT_S)
    assert marked(Layout.at(data)) == []
