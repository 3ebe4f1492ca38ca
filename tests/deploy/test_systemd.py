"""The units: valid by systemd, and true to what the program does with signals, ends and system calls."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.api.serve import parser as serve_parser
from paceline.cluster.agent.main import LEFT_RANKS, LEFT_TO_RETURN
from tests.deploy.test_files import DEPLOY, PROGRAM_SECONDS, ROOT, worker_options

UNITS = ("paceline-coordinator.service", "paceline-agent.service")


def settings_of(unit: str) -> list[tuple[str, str]]:
    """Each NAME=VALUE of the unit, in its order."""
    return re.findall(r"^(\w+)=(.*)$", (DEPLOY / "systemd" / unit).read_text(), re.MULTILINE)


def drop_in_of(unit: str) -> str:
    """The drop-in that the page gives for a unit: the block of settings behind `systemctl edit UNIT`."""
    page = (ROOT / "docs" / "deploy" / "systemd.md").read_text()
    block = page.partition(f"`systemctl edit {unit.removesuffix('.service')}`")[2].partition(":\n\n    [Service]\n")[2].partition("\n\n")[0]
    assert block, f"the page has no drop-in for {unit}"
    return "[Service]\n" + "".join(f"{line.strip()}\n" for line in block.splitlines())


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("systemd-analyze is not installed")
    return subprocess.run([program, *words], capture_output=True, text=True, timeout=PROGRAM_SECONDS)


def installed(unit: str, folder: Path, drop_in: str = "") -> Path:
    """A unit as it is on a machine, with its drop-in; its programs are those of this Python."""
    programs = str(Path(sys.executable).parent)
    path, override = folder / unit, folder / f"{unit}.d" / "override.conf"
    path.write_text((DEPLOY / "systemd" / unit).read_text().replace("/opt/paceline/bin", programs))
    if drop_in:
        override.parent.mkdir()
        override.write_text(drop_in.replace("/opt/paceline/bin", programs))
    return path


def capabilities_of(unit: Path) -> set[str]:
    """The groups of capabilities that a unit leaves to its processes, as systemd names them; and `User` where they are root's."""
    rows = json.loads(analyze("security", "--offline=true", "--json=short", unit).stdout)
    return {
        row["name"].removeprefix("CapabilityBoundingSet=~").partition("=")[0]
        for row in rows
        if not row["set"] and _is_of_power(row["name"])
    }


def _is_of_power(name: str) -> bool:
    return name.startswith(("CapabilityBoundingSet=", "User="))


@pytest.mark.parametrize("has_drop_in", [False, True], ids=["as it is", "with the page's drop-in"])
@pytest.mark.parametrize("unit", UNITS)
def test_units_are_valid(unit: str, has_drop_in: bool, tmp_path: Path) -> None:
    """A certificate by `systemctl edit` was a second ExecStart, which systemd refuses: the page did not say that the first has to be emptied."""
    drop_in = drop_in_of(unit) if has_drop_in else ""
    done = analyze("verify", "--man=no", installed(unit, tmp_path, drop_in))
    assert (done.returncode, done.stderr) == (0, "")
    commands = re.findall(r"^ExecStart=(.+)$", (DEPLOY / "systemd" / unit).read_text() + drop_in, re.MULTILINE)
    assert commands
    known = {word for each in serve_parser()._actions for word in each.option_strings} | worker_options()
    assert set(re.findall(r"--[a-z-]+", " ".join(commands))) <= known


def test_the_agents_drop_in_gives_it_root_and_the_capabilities_that_it_names(tmp_path: Path) -> None:
    """systemd passes over the name of a capability that it does not know without a word."""
    unit, drop_in = "paceline-agent.service", drop_in_of("paceline-agent.service")
    (tmp_path / "plain").mkdir()
    assert capabilities_of(installed(unit, tmp_path / "plain")) == set()
    assert capabilities_of(installed(unit, tmp_path, drop_in)) == {
        "User",
        "CAP_SET(UID|GID|PCAP)",
        "CAP_(CHOWN|FSETID|SETFCAP)",
        "CAP_(DAC_*|FOWNER|IPC_OWNER)",
        "CAP_KILL",
        "CAP_SYS_PTRACE",
        "CAP_SYS_(NICE|RESOURCE)",
    }
    (names,) = re.findall(r"^CapabilityBoundingSet=(.+)$", drop_in, re.MULTILINE)
    known = analyze("capability")
    if known.returncode == 0:  # systemd 251 and newer
        assert {name.lower() for name in names.split()} <= {
            line.split()[0] for line in known.stdout.splitlines() if line.startswith("cap_")
        }


@pytest.mark.parametrize("unit", UNITS)
def test_a_system_call_that_is_not_allowed_fails_and_kills_nobody(unit: str) -> None:
    """numpy's OpenBLAS calls mbind as it is imported: experiments were never analyzed, and a search killed the coordinator again and again."""
    given = dict(settings_of(unit))
    if "SystemCallFilter" in given:
        assert given.get("SystemCallErrorNumber") == "EPERM"


def test_ranks_do_not_run_as_the_coordinators_user_and_each_has_a_home() -> None:
    """Every member could read the coordinator's keys; and on a machine with an agent alone no rank could write to its cache."""
    page = (ROOT / "docs" / "deploy" / "systemd.md").read_text()
    users = {}
    for unit in UNITS:
        given = dict(settings_of(unit))
        line = next(line for line in page.splitlines() if line.strip().startswith("useradd") and line.endswith(f" {given['User']}"))
        assert f"--home-dir /var/lib/{given['StateDirectory']} " in line
        users[given["User"]] = line
    assert len(users) == len(UNITS)
    assert "--uid " in users["paceline-agent"], "on a shared file system one agent could not write what another has made"


def test_ranks_of_another_user_reach_the_folders_of_their_jobs() -> None:
    """The drop-in of the page left the agent's folder to its owner: the agent ended with "that user cannot enter" and was started for ever."""
    assert dict(settings_of("paceline-agent.service"))["StateDirectoryMode"] == "0700", "so the drop-in has to open it"
    (mode,) = re.findall(r"^StateDirectoryMode=(\d+)$", drop_in_of("paceline-agent.service"), re.MULTILINE)
    assert int(mode, 8) & 0o001


def test_no_folder_is_taken_from_ranks_that_outlive_their_agent() -> None:
    """systemd removes a private /tmp when the agent ends: adopted ranks could write no temporary file."""
    given = dict(settings_of("paceline-agent.service"))
    assert given["KillMode"] == "process"
    assert not {"PrivateTmp", "DynamicUser", "RuntimeDirectory"} & given.keys()


def test_an_upgrade_of_an_agent_leaves_its_ranks_alone() -> None:
    """`systemctl kill` signals the whole unit where nothing else is said: the ranks died of it."""
    lines = re.findall(r"systemctl kill [^`]*", (ROOT / "docs" / "deploy" / "upgrade.md").read_text())
    assert lines
    assert all(line.split()[2] == "--kill-whom=main" for line in lines)


def test_an_agent_that_leaves_with_its_machine_is_not_started_before_that_is_back() -> None:
    """Two seconds after it had drained for a notice it was ready again, and got ranks just before its machine was taken away."""
    assert dict(settings_of("paceline-agent.service"))["RestartPreventExitStatus"] == str(LEFT_TO_RETURN)
    assert f"RestartPreventExitStatus={LEFT_TO_RETURN}\n" in (ROOT / "docs" / "second_machine.md").read_text()


@pytest.mark.parametrize("place", ["deploy/systemd/paceline-agent.service", "docs/second_machine.md"])
def test_an_agent_that_is_stopped_drains_its_node_and_the_node_keeps_its_place(place: str) -> None:
    """A reboot and `systemctl stop` ended ranks that had not saved: what they had done since their last checkpoint was lost."""
    given = dict(re.findall(r"^ *(\w+)=(.*)$", (ROOT / place).read_text(), re.MULTILINE))
    assert signal.Signals[given["KillSignal"]] == signal.SIGUSR1
    assert given["TimeoutStopSec"] == "infinity", "the agent ends by itself, and scripts have their own time to save"
    assert given["SuccessExitStatus"] == str(LEFT_TO_RETURN)
    assert "--returns" in given["ExecStart"].split()


def test_the_coordinator_of_a_machine_ends_after_its_agent() -> None:
    """It has to move the agent's jobs away: else the agent waits for it in vain."""
    assert "paceline-coordinator.service" in dict(settings_of("paceline-agent.service"))["After"].split()


def test_an_upgraded_agent_is_started_by_its_unit() -> None:
    """`systemctl start`, pasted behind the signal, found the old agent still running and did nothing: the node was lost, its ranks ended."""
    assert dict(settings_of("paceline-agent.service"))["RestartForceExitStatus"] == str(LEFT_RANKS)
    usual, first = (ROOT / "docs" / "deploy" / "upgrade.md").read_text().split("**The first upgrade")
    assert "systemctl start" not in usual
    assert "is-active" in first.partition("systemctl start")[0], "an agent of before ends with 0, and nothing starts it again"


def test_who_has_the_units_of_before_is_told_how_to_change_users() -> None:
    """`useradd` said that the user exists, so the coordinator never got the group; and no job could enter its folder of checkpoints any more."""
    page = (ROOT / "docs" / "deploy" / "systemd.md").read_text().partition("### From units")[2].partition("\n## ")[0]
    stop, user, group, owner, start = (
        page.index(each)
        for each in (
            "systemctl stop paceline-agent",
            "useradd --system --uid 850 ",
            "usermod --append --groups paceline-agent paceline",
            "chown --recursive paceline-agent: /mnt/shared/checkpoints && chmod --recursive g+rX",
            "systemctl start paceline-agent",
        )
    )
    assert stop < user < group < owner < start
