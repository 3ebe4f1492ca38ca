"""On the machine itself: the unit of a node under systemd, and the file with its agent's variables."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline.cluster.agent.confinement import Confinement
from paceline.cluster.provisioners.ssh import on_host
from paceline.cluster.provisioners.ssh.on_host import read_variables
from tests.cluster.agent.spawners import TIMEOUT_SECONDS, Node


def file(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    path = tmp_path / "agent.env"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_variables_are_read_line_by_line(tmp_path: Path) -> None:
    text = "# of the bucket\n\nAWS_ACCESS_KEY_ID=me\nAWS_SECRET_ACCESS_KEY='a=b \"c\"'\nEMPTY=\n"
    found = read_variables(file(tmp_path, text))
    assert found == {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": 'a=b "c"', "EMPTY": ""}


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "A=1", 0o640)
    with pytest.raises(RuntimeError, match=f"chmod 600 {path}"):
        read_variables(path)


@pytest.mark.parametrize("text", ["export A=1", "A", "A B=1", "1A=2"])
def test_a_line_that_is_no_variable_is_refused_without_its_value(tmp_path: Path, text: str) -> None:
    with pytest.raises(RuntimeError, match=r"line 2 is not NAME=VALUE$"):
        read_variables(file(tmp_path, f"B=1\n{text}\n"))


class UserSystemd:
    """`systemctl` and `loginctl` that write down their words. The process whose id is in `left` is all that a unit still has: `kill` ends it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home, programs = folder / "home", folder / "programs"
        self.home.mkdir()
        programs.mkdir()
        self.calls, self.left = folder / "calls", folder / "left"
        systemctl = f'#!/bin/sh\nshift\necho "$*" >>{self.calls}\n[ "$1" != kill ] || kill -KILL "$(cat {self.left})"\n'
        for name, text in (("systemctl", systemctl), ("loginctl", "#!/bin/sh\n")):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        monkeypatch.setenv("HOME", str(self.home))

    def start(self, *arguments: str) -> Path:
        """Start the unit of a node, whose agent has these options. Returns the node's folder."""
        order = {"folder": "~/.paceline", "name": "lab-gpu1", "program": "raise SystemExit", "key": "k", "arguments": arguments}
        assert on_host.start(order) == {"state": "started", "how": "systemd"}
        return on_host.node_folder(order)

    @property
    def unit(self) -> Path:
        return self.home / ".config/systemd/user/paceline-agent-lab-gpu1.service"


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UserSystemd:
    return UserSystemd(tmp_path, monkeypatch)


def test_ranks_outlive_their_agent_under_systemd_and_one_rank_out_of_memory_ends_no_other(systemd: UserSystemd) -> None:
    """All ranks of the node were killed along with an agent that died."""
    systemd.start()
    settings = systemd.unit.read_text().splitlines()
    assert [each for each in settings if each.startswith(("KillMode=", "OOMPolicy="))] == ["KillMode=process", "OOMPolicy=continue"]


def test_a_machine_that_is_restarted_drains_its_node_first_and_the_node_keeps_its_place(systemd: UserSystemd) -> None:
    """Its ranks were ended at once, without a save."""
    systemd.start()
    settings = systemd.unit.read_text().splitlines()
    assert {"KillSignal=SIGUSR1", "TimeoutStopSec=infinity", "SuccessExitStatus=3", "RestartPreventExitStatus=3"} < set(settings)
    assert next(each for each in settings if each.startswith("ExecStart=")).endswith(' "--returns"')


@pytest.mark.parametrize("option", ["--notice-command", "--notice-file"])
def test_a_machine_that_says_its_end_itself_does_not_come_back(systemd: UserSystemd, option: str) -> None:
    systemd.start(option, "/run/notice")
    assert "SIGUSR1" not in systemd.unit.read_text()
    assert "--returns" not in systemd.unit.read_text()


def test_a_node_that_comes_back_with_its_machine_has_not_ended(systemd: UserSystemd) -> None:
    """Looked at while its machine went down or came up, a node was drained and removed for good."""
    folder = systemd.start()
    with subprocess.Popen(["true"]) as agent:
        agent.wait(10.0)
    on_host.write(folder / "status.json", {"phase": "running", "reason": "", "pid": agent.pid, "started": "1"})
    (folder / "data").mkdir()
    (folder / "data" / "credential.json").touch()
    assert on_host.look("~/.paceline", ["lab-gpu1"])["lab-gpu1"]["phase"] == "running"
    (folder / "data" / "credential.json").unlink()  # the coordinator has removed the node
    assert on_host.look("~/.paceline", ["lab-gpu1"])["lab-gpu1"]["phase"] == "ended"


#: Takes SIGTERM, and the signal of its unit, for a notice, as an agent does.
DRAINS = "import signal\nfor each in (signal.SIGTERM, signal.SIGUSR1):\n    signal.signal(each, lambda *_: None)\nprint(flush=True)\nwhile True:\n    signal.pause()\n"


def test_a_node_that_is_ended_is_not_drained_first(tmp_path: Path) -> None:
    """The coordinator has drained it, or nobody wants it: it was waited for, and killed with what it had not cleared away."""
    folder = tmp_path / "nodes" / "gpu1"
    folder.mkdir(parents=True)
    with subprocess.Popen(
        [sys.executable, "-c", DRAINS], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as agent:
        assert agent.stdout is not None
        agent.stdout.readline()
        on_host.write(folder / "status.json", {"phase": "running", "pid": agent.pid, "started": on_host.started_at(agent.pid)})
        on_host.stop(folder, "gpu1")
        assert agent.wait(10.0) == -signal.SIGINT


def test_the_unit_of_a_node_is_valid(systemd: UserSystemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    systemd.start()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done = subprocess.run([program, "--user", "verify", "--man=no", systemd.unit], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_node_that_is_ended_leaves_nothing_under_systemd(systemd: UserSystemd) -> None:
    folder = systemd.start()
    with subprocess.Popen(["sleep", "60"]) as spawner:  # its agent has died, and left it
        systemd.left.write_text(str(spawner.pid))
        on_host.stop(folder, "lab-gpu1")
        assert spawner.wait(10.0) == -signal.SIGKILL
    calls = systemd.calls.read_text().splitlines()
    unit = systemd.unit.name
    assert calls[-3:] == [f"disable --now {unit}", f"kill --signal=KILL {unit}", "daemon-reload"]
    assert not systemd.unit.exists()
    assert not folder.exists()


def test_an_agent_that_ends_as_it_is_told_to_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was looked at, and had ended when its signal came: the node's folder stayed on the machine."""
    folder = tmp_path / "nodes" / "gpu1"
    folder.mkdir(parents=True)
    with subprocess.Popen(["true"]) as agent:
        agent.wait(10.0)
    on_host.write(folder / "status.json", {"phase": "running", "pid": agent.pid, "started": "1"})
    looks = iter([True, False])
    monkeypatch.setattr(on_host, "is_alive", lambda status: next(looks, False))
    on_host.stop(folder, "gpu1")
    assert not folder.exists()


def test_ranks_that_outlive_an_agent_without_systemd_end_with_their_node(tmp_path: Path) -> None:
    """Their spawner, which takes no SIGTERM, kept the cards of the machine from its next node for a quarter of an hour."""
    folder = tmp_path / "nodes" / "gpu1"
    node = Node(folder / "data", confinement=Confinement(shielded=True))
    other = Node(tmp_path / "nodes" / "gpu2" / "data")
    on_host.write(folder / "status.json", {"phase": "running", "pid": None})
    order = node.order()
    program = (sys.executable, "-c", "import signal; signal.pause()")
    node.agent.say(node.spawn(order.order, program, tmp_path, fresh=True, PATH=os.environ["PATH"]))
    (rank,) = node.agent.until(bool).values()
    node.agent.close()
    try:
        on_host.stop(folder, "gpu1")
        assert node.process.wait(TIMEOUT_SECONDS) == -signal.SIGKILL
        assert on_host.started_at(rank) is None
        assert other.process.poll() is None
    finally:
        other.end()
        node.process.kill()


def test_a_node_of_another_coordinator_is_neither_taken_over_nor_ended(tmp_path: Path) -> None:
    """A second coordinator took the agent for its own, waited in vain for it to join, and removed it with its checkpoints."""
    ours = {"folder": str(tmp_path), "name": "gpu1", "environment": "python3", "key": "", "launch": "a", "server": "https://lab:8000"}
    theirs = ours | {"launch": "b", "server": "https://laptop:8000"}
    taken = {"state": "taken", "server": "https://lab:8000"}
    folder = on_host.node_folder(ours)
    folder.mkdir(parents=True)
    with subprocess.Popen(["sleep", "60"]) as agent:
        on_host.write(folder / "order.json", ours)
        on_host.write(folder / "status.json", {"phase": "running", "pid": agent.pid, "started": on_host.started_at(agent.pid)})
        assert on_host.prepare(ours) == {"state": "there"}
        assert on_host.prepare(theirs) == on_host.prepare(ours | {"launch": "c"}) == taken
        assert on_host.end(str(tmp_path), "gpu1", "b") == {"state": "gone"}
        assert agent.poll() is None
        agent.kill()
    assert on_host.prepare(theirs) == taken, "its checkpoints are still there"
    assert on_host.prepare(ours | {"launch": "c"}) == {"state": "ready"}
    assert (folder / "order.json").exists()


@pytest.mark.parametrize("how", ["systemd", "setsid"])
def test_nobody_else_reads_the_log_of_a_node_that_has_ended(systemd: UserSystemd, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """It may carry what a job prints, and every account of the machine could read it."""
    agents, popen = list[subprocess.Popen[Any]](), subprocess.Popen
    if how == "setsid":
        monkeypatch.setattr(on_host, "start_by_systemd", lambda order, command: False)
        monkeypatch.setattr(subprocess, "Popen", lambda *words, **options: agents.append(popen(*words, **options)) or agents[-1])
    order = {"folder": "~/.paceline", "name": "lab-gpu1", "program": "print('started')", "key": "k", "arguments": []}
    assert on_host.start(order)["how"] == how
    folder, kept = on_host.node_folder(order), systemd.home / ".paceline/logs"
    log = folder / "agent.log"
    assert [agent.wait(30) for agent in agents] == [0] * (how == "setsid")
    assert log.stat().st_mode & 0o777 == 0o600, "before anything is written: systemd appends to what is there"
    log.chmod(0o644)  # of a node that an earlier version has started
    kept.mkdir(mode=0o755)
    systemd.left.write_text("1000000000")
    on_host.stop(folder, "lab-gpu1")
    assert [each.stat().st_mode & 0o777 for each in (kept, kept / "lab-gpu1.log")] == [0o700, 0o600]
