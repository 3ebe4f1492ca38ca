"""What a rank does to its parent and to its parent's children, beside a rank of another job that must not notice."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from paceline.cluster.agent.spawner_link import Spawn, Terminate
from paceline.cluster.protocol import RankKey
from tests.cluster.agent.spawners import TIMEOUT_SECONDS, Node
from tests.waiting import wait_until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "agent")
    yield node
    node.end()


def program(node: Node, rank: int, text: str) -> Spawn:
    return msgspec.structs.replace(node.order(rank), program=(sys.executable, "-u", "-c", text))


def start_neighbour(node: Node) -> int:
    """Its pid."""
    spawn = node.order(1)
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    return node.agent.until(lambda ranks: key in ranks)[key]


HARM = {
    "kills its parent": ("os.kill(os.getppid(), signal.SIGKILL)", "SIGKILL"),
    "kills the process group of its parent": ("os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)", "SIGKILL"),
    "ends all children of its parent": (
        "[child.kill() for child in psutil.Process(os.getppid()).children(recursive=True) if child.pid != os.getpid()]; sys.exit(3)",
        None,
    ),
    "asks its parent to end": ("os.kill(os.getppid(), signal.SIGTERM); sys.exit(3)", None),
}


@pytest.mark.parametrize(("harm", "died_of"), HARM.values(), ids=HARM.keys())
def test_a_rank_that_harms_its_parent_harms_no_other_job(node: Node, harm: str, died_of: str | None) -> None:
    neighbour = start_neighbour(node)
    status = node.run(program(node, 0, f"import os, psutil, signal, sys, time; {harm}; time.sleep(600)"))
    assert (status.signal, status.exit_code) == (died_of, None if died_of else 3)
    assert psutil.Process(neighbour).status() != psutil.STATUS_ZOMBIE
    assert node.process.poll() is None


def test_a_rank_that_stops_its_parent_can_still_be_ended(node: Node) -> None:
    spawn = program(node, 0, "import os, signal; os.kill(os.getppid(), signal.SIGSTOP); print('stopped')")
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    pid = node.agent.until(lambda ranks: key in ranks)[key]
    wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, "its end", seconds=TIMEOUT_SECONDS)
    node.agent.say(Terminate(key=key, grace_seconds=0.1))
    node.agent.until(lambda ranks: key not in ranks)
    assert node.exit_status(spawn).exit_code == 0
    assert not psutil.pid_exists(pid)


def test_a_shim_holds_nothing_of_the_spawners_and_ends_with_its_rank(node: Node) -> None:
    pid = start_neighbour(node)
    shim = psutil.Process(pid).parent()
    assert shim is not None
    assert shim.ppid() == node.agent.process_list.spawner_pid
    assert shim.net_connections("unix") == []
    wait_until(lambda: [os.getsid(process) for process in (pid, shim.pid)] == [pid, shim.pid], "their sessions", seconds=TIMEOUT_SECONDS)
    os.kill(pid, signal.SIGKILL)
    node.agent.until(lambda ranks: not ranks)
    wait_until(lambda: not shim.is_running(), "the end of the shim", seconds=TIMEOUT_SECONDS)
