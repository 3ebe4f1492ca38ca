"""`--memory-limit`: what is written to the kernel's files, and a clear word where there is no such thing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.cluster.agent.errors import MemoryLimitError
from paceline.cluster.agent.memory_groups import MemoryGroups, divide_own_group, enter
from paceline.cluster.agent.settings import read_settings
from tests.waiting import wait_until

LIMIT = 16 << 30
TIMEOUT_SECONDS = 10.0


def machine(tmp_path: Path, *, own: str = "/user/agent", controllers: str = "cpu memory pids") -> tuple[Path, Path]:
    """A /proc and a group of this process's that look like the kernel's."""
    proc, group = tmp_path / "proc", tmp_path / "cgroup" / own.lstrip("/")
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "mounts").write_text(f"sysfs /sys sysfs rw 0 0\ncgroup2 {tmp_path / 'cgroup'} cgroup2 rw,nosuid 0 0\n")
    (proc / "self" / "cgroup").write_text(f"0::{own}\n")
    group.mkdir(parents=True)
    (group / "cgroup.controllers").write_text(controllers)
    return proc, group


def test_the_agent_goes_into_a_group_of_its_own_so_that_ranks_can_have_theirs(tmp_path: Path) -> None:
    proc, group = machine(tmp_path)
    assert divide_own_group(LIMIT, proc) == group
    assert (group / "paceline-agent" / "cgroup.procs").read_text() == str(os.getpid())
    assert (group / "cgroup.subtree_control").read_text() == "+memory"
    (proc / "self" / "cgroup").write_text("0::/user/agent/paceline-agent\n")  # the next agent, started from this one's place
    assert divide_own_group(LIMIT, proc) == group


def test_a_rank_gets_the_limit_and_its_group_is_ended_as_one(tmp_path: Path) -> None:
    groups = MemoryGroups(tmp_path, LIMIT)
    (tmp_path / "paceline-job-g1-r0").mkdir()
    for file in ("memory.swap.max", "memory.oom.group"):
        (tmp_path / "paceline-job-g1-r0" / file).write_text("")
    group = groups.create("job-g1-r0")
    written = {path.name: path.read_text() for path in group.iterdir()}
    assert written == {"memory.max": str(LIMIT), "memory.swap.max": "0", "memory.oom.group": "1"}
    (group / "memory.events").write_text("low 0\nhigh 0\nmax 9\noom 1\noom_kill 2\n")
    assert groups.end(group)
    assert (group / "cgroup.kill").read_text() == "1"
    assert not groups.end(groups.create("job-g1-r1"))  # without memory.events: nothing is claimed


def test_empty_groups_that_were_left_behind_are_removed_when_the_next_one_is_made(tmp_path: Path) -> None:
    left, young, living, own = (tmp_path / f"paceline-{name}" for name in ("exec-1", "exec-2", "job-g1-r0", "agent"))
    for group in (left, young, living, own):
        group.mkdir()
    (living / "cgroup.procs").write_text(
        "7"
    )  # a folder that is not empty is not removed, as the kernel does not remove a group with a process
    for old in (left, living, own):
        os.utime(old, (0, 0))
    made = MemoryGroups(tmp_path, LIMIT).create("exec-3")
    assert set(tmp_path.iterdir()) == {young, living, own, made}


@pytest.mark.parametrize(
    ("mounts", "controllers", "why"), [("", "memory", "no control groups of version 2"), (None, "cpu pids", "does not control memory")]
)
def test_a_limit_that_cannot_be_kept_is_refused_with_the_way_out(tmp_path: Path, mounts: str | None, controllers: str, why: str) -> None:
    proc, _ = machine(tmp_path, controllers=controllers)
    if mounts is not None:
        (proc / "self" / "mounts").write_text(mounts)
    with pytest.raises(MemoryLimitError, match=f"--memory-limit 16384MiB cannot be kept: .*{why}.*Delegate=yes"):
        divide_own_group(LIMIT, proc)


def test_a_limit_is_a_size(capsys: pytest.CaptureFixture[str]) -> None:
    required = ["--server", "http://127.0.0.1:8000/", "--data", "/data"]
    assert read_settings([*required, "--memory-limit", "16GiB"]).confinement.memory_limit == LIMIT
    for wrong in ("16", "16GB", "1MiB"):
        with pytest.raises(SystemExit):
            read_settings([*required, "--memory-limit", wrong])
        assert wrong in capsys.readouterr().err


def writable_hierarchy() -> Path | None:
    """Where this process may make control groups of version 2, with or without a memory controller."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines() if line.split()[2] == "cgroup2"]
    return next((path for mount in mounts if os.access(path := Path(mount), os.W_OK)), None)


def test_whatever_a_rank_started_ends_with_its_real_group() -> None:
    parent = writable_hierarchy()
    if parent is None:
        pytest.skip("no control groups of version 2 that this user may write")
    group = parent / f"paceline-test-{os.getpid()}"
    group.mkdir()
    groups, sleeper = MemoryGroups(parent, LIMIT), "import time; time.sleep(600)"
    process = subprocess.Popen([sys.executable, "-c", sleeper], preexec_fn=lambda: enter(group), start_new_session=True)
    try:
        if not (group / "cgroup.kill").exists():
            pytest.skip("a kernel before 5.14")
        (group / "cgroup.kill").write_text("1")
        assert process.wait(TIMEOUT_SECONDS) == -9
        wait_until(lambda: groups.end(group) or not group.exists(), "the end of the group", seconds=TIMEOUT_SECONDS)
    finally:
        process.kill()
        process.wait()
        if group.exists():
            group.rmdir()
