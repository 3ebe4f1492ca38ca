"""What the ranks of a script have between SIGTERM and SIGKILL: real programs under a real spawner, which save for a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from paceline.cluster.agent.ranks.exits import conclude
from paceline.cluster.agent.spawner_link import ExitStatus, Shutdown, Spawn, Terminate
from paceline.cluster.protocol import RankKey
from paceline.training.schema.script import GRACE_SECONDS, OWN_GRACE_SECONDS, grace_of
from tests.cluster.agent.conftest import world
from tests.cluster.agent.spawners import TIMEOUT_SECONDS, Node
from tests.processes import is_alive
from tests.waiting import wait_until

#: Writes its checkpoint in five parts, or as many as it is told, for a tenth of a second each, as a handler of SIGTERM; with workers as those
#: of a DataLoader, which do not outlive SIGTERM.
SAVES = """
import multiprocessing, os, signal, sys, time

def save(*_):
    print("told", flush=True)
    for part in range(int(sys.argv[2]) if sys.argv[2:] else 5):
        with open("checkpoint", "a") as file:
            file.write(str(part))
        time.sleep(0.1)
    os.rename("checkpoint", f"checkpoint-{sys.argv[1]}")
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    raise SystemExit(0)

def work():
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    time.sleep(600)

def tell_of_workers(*_):
    if any(worker.exitcode for worker in workers):
        raise RuntimeError("a worker was ended before its program")

if __name__ == "__main__":
    workers = [multiprocessing.get_context(method).Process(target=work, daemon=True) for method in ("fork", "spawn")]
    for worker in workers:
        worker.start()
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGCHLD, tell_of_workers)
    time.sleep(0.3)
    print("ready", flush=True)
    while True:
        time.sleep(0.1)
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    node = Node(tmp_path_factory.mktemp("spawner") / "agent")
    yield node
    node.end()


def start(node: Node, rank: int, program: tuple[str, ...], folder: Path) -> Spawn:
    (folder / "saves.py").write_text(SAVES)
    spawn = node.spawn(node.order(rank).order, program, folder, fresh=True)
    node.agent.say(spawn)
    node.agent.until(lambda ranks: RankKey.of(spawn.order.world) in ranks)
    wait_until(lambda: "ready" in node.output(spawn), "the script", seconds=TIMEOUT_SECONDS)
    return spawn


def end(node: Node, spawn: Spawn, grace: float) -> ExitStatus:
    key = RankKey.of(spawn.order.world)
    node.agent.say(Terminate(key=key, grace_seconds=grace))
    node.agent.until(lambda ranks: key not in ranks)
    return node.exit_status(spawn)


def test_a_script_that_saves_at_sigterm_has_the_time_and_its_workers_until_it_is_done(node: Node, tmp_path: Path) -> None:
    spawn = start(node, 0, (sys.executable, "saves.py", "a"), tmp_path)
    workers = psutil.Process(dict(node.agent.process_list.ranks)[RankKey.of(spawn.order.world)]).children(recursive=True)
    status = end(node, spawn, grace=TIMEOUT_SECONDS)
    assert (tmp_path / "checkpoint-a").read_text() == "01234", node.output(spawn)
    assert (status.exit_code, status.ordered, status.killed_after) == (0, True, None)
    assert workers
    wait_until(lambda: not any(map(is_alive, workers)), "the end of its workers", seconds=TIMEOUT_SECONDS)


#: Does not handle SIGTERM, and has helpers of every kind that would outlive it.
DOES_NOT_SAVE = """
import multiprocessing, os, signal, time

def work():
    while True:
        time.sleep(1)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for method in ("fork", "spawn"):
        multiprocessing.get_context(method).Process(target=work).start()
    if os.fork() == 0:
        work()
    time.sleep(0.3)
    print("ready", flush=True)
    work()
"""
FAR_OFF_SECONDS = 3600.0


def test_helpers_that_outlive_a_script_which_saves_nothing_cost_no_grace(node: Node, tmp_path: Path) -> None:
    """A restart took the whole grace where a rank had a helper of multiprocessing."""
    (tmp_path / "run.py").write_text(DOES_NOT_SAVE)
    spawn = start(node, 3, (sys.executable, "run.py"), tmp_path)
    started = psutil.Process(dict(node.agent.process_list.ranks)[RankKey.of(spawn.order.world)]).children(recursive=True)
    assert len(started) >= 3
    status = end(node, spawn, grace=FAR_OFF_SECONDS)
    assert (status.signal, status.ordered, status.killed_after) == ("SIGTERM", True, None)
    wait_until(lambda: not any(map(is_alive, started)), "the end of its helpers", seconds=TIMEOUT_SECONDS)


def test_what_a_shell_runs_saves_though_the_shell_ends_at_once(node: Node, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{sys.executable} saves.py b\necho never\n")
    spawn = start(node, 1, ("bash", "run.sh"), tmp_path)
    status = end(node, spawn, grace=TIMEOUT_SECONDS)
    assert (tmp_path / "checkpoint-b").read_text() == "01234", node.output(spawn)
    assert (status.signal, status.ordered, status.killed_after) == ("SIGTERM", True, None)
    assert node.output(spawn).split() == ["ready", "told"]


def test_what_saves_for_longer_than_its_grace_is_killed_with_everything_it_started(node: Node, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"{sys.executable} saves.py c 6000\n")
    spawn = start(node, 2, ("bash", "run.sh"), tmp_path)
    started = psutil.Process(dict(node.agent.process_list.ranks)[RankKey.of(spawn.order.world)]).children(recursive=True)
    status = end(node, spawn, grace=2.0)
    assert (tmp_path / "checkpoint").exists()
    assert not (tmp_path / "checkpoint-c").exists()
    wait_until(lambda: not any(map(is_alive, started)), "the end of what it started", seconds=TIMEOUT_SECONDS)
    assert (status.ordered, status.killed_after) == (True, 2.0)
    failure = conclude(status, None, (), world("job1", 2), is_script=True, step=0).failure
    assert failure is not None
    assert failure.message == "did not end within 2 s of SIGTERM, and was killed"


def test_a_node_that_is_shut_down_gives_each_rank_its_own_grace(tmp_path: Path) -> None:
    """It was three seconds for all of them."""
    node = Node(tmp_path / "agent")
    spawn = start(node, 0, (sys.executable, "saves.py", "d"), tmp_path)
    node.agent.say(Shutdown(grace_seconds=TIMEOUT_SECONDS))
    assert node.process.wait(TIMEOUT_SECONDS) == 0
    assert (tmp_path / "checkpoint-d").read_text() == "01234", node.output(spawn)
    node.end()


@pytest.mark.parametrize(
    ("stored", "seconds"),
    [
        ({"script": {"path": "train.py", "grace_seconds": 90}}, 90),
        ({"script": {"path": "train.py"}}, GRACE_SECONDS),  # stored by an earlier version
        ({"script": {"path": "train.py", "grace_seconds": "long"}}, GRACE_SECONDS),  # damaged
        ({"script": {"path": "train.py", "grace_seconds": 10**9}}, GRACE_SECONDS),
        ({"script": None, "model": {"kind": "mlp"}}, OWN_GRACE_SECONDS),
        ({}, OWN_GRACE_SECONDS),
    ],
)
def test_the_grace_of_a_stored_job_can_always_be_told(stored: dict[str, object], seconds: float) -> None:
    assert grace_of(stored) == seconds
