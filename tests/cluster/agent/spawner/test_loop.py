"""The spawner by itself: a real process, spoken to over its socket."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from paceline.cluster.agent.confinement import Confinement
from paceline.cluster.agent.folders import AgentFolder
from paceline.cluster.agent.processes import RANK_SCORE, tag_of
from paceline.cluster.agent.spawner.__main__ import main
from paceline.cluster.agent.spawner_link import (
    ProcessList,
    Shutdown,
    Terminate,
)
from paceline.cluster.agent.supervisor import SpawnerOptions, start_spawner
from paceline.cluster.protocol import RankKey
from paceline.training.rank_folder import RankFolder
from tests.cluster.agent.conftest import FAKE_TRAINER
from tests.cluster.agent.spawners import TIMEOUT_SECONDS, Agent, Node
from tests.processes import is_pid_alive
from tests.waiting import wait_until


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "agent")
    yield node
    node.end()


@pytest.fixture
def on_a_full_disk(tmp_path: Path) -> Iterator[Node]:
    """Whose spawner's log takes nothing."""
    node = Node(tmp_path / "agent", log="/dev/full")
    yield node
    node.end()


@contextmanager
def closed_to_writers(folder: Path) -> Iterator[None]:
    """As on a full disk, no file can be made there: what leads to a plain file has the folder's place. The folder is back in one step, since
    the spawner, which makes one where there is none, tries again at any moment."""
    aside = folder.rename(folder.with_name(f"{folder.name}.aside"))
    file, back = folder.with_name(f"{folder.name}.file"), folder.with_name(f"{folder.name}.back")
    file.touch()
    folder.symlink_to(file)
    yield
    back.symlink_to(aside)
    back.replace(folder)


@pytest.mark.parametrize(("end", "code"), [("0", 0), ("3", 3), ("no data", 1)])
def test_exit_codes_are_the_processs_own(node: Node, end: str, code: int) -> None:
    spawn = node.order(exit=end)
    status = node.run(spawn)
    assert (status.exit_code, status.signal, status.out_of_memory) == (code, None, False)
    assert node.output(spawn) == ("no data\n" if end == "no data" else "")


def test_an_exception_is_in_the_output_and_its_code_is_one(node: Node) -> None:
    spawn = node.order(steps="not a number")
    assert node.run(spawn).exit_code == 1
    assert "ValueError" in node.output(spawn)


def test_a_rank_that_ends_by_a_signal_without_a_name_of_its_own_has_ended(node: Node) -> None:
    spawn = node.order()
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    os.kill(node.agent.until(lambda ranks: key in ranks)[key], signal.SIGRTMIN + 1)
    node.agent.until(lambda ranks: key not in ranks)
    assert node.exit_status(spawn).signal == "SIGRTMIN+1"


@pytest.mark.parametrize("put", [os.mkfifo, lambda path: path.symlink_to("/etc/hostname")], ids=["pipe", "link"])
def test_what_another_rank_puts_in_the_place_of_its_output_keeps_no_rank_from_starting(node: Node, put: Callable[[Path], None]) -> None:
    """The spawner, the parent of all ranks, would wait for a reader of the pipe."""
    spawn = node.order(exit="0")
    output = RankFolder.at(Path(spawn.order.folder)).output
    put(output)
    assert node.run(spawn).exit_code == 0
    assert output.is_file()
    assert not output.is_symlink()


def test_a_rank_leads_a_session_of_its_own_and_inherits_no_descriptor(node: Node) -> None:
    spawn = node.order()
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    pid = node.agent.until(lambda ranks: key in ranks)[key]
    wait_until(lambda: "step" in node.output(spawn), "a step", seconds=TIMEOUT_SECONDS)
    rank = psutil.Process(pid)
    assert [parent.pid for parent in rank.parents()[1:2]] == [node.agent.process_list.spawner_pid]  # between them is its shim
    assert {file.path for file in rank.open_files()} == {f"{spawn.order.folder}/output.log", f"{spawn.order.folder}/metrics.spool"}
    assert rank.net_connections("unix") == []


def test_ordering_a_rank_twice_starts_it_once(node: Node) -> None:
    spawn = node.order()
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    first = node.agent.until(lambda ranks: key in ranks)
    node.agent.say(spawn)
    assert dict(node.agent.read().ranks) == first
    ended = node.order(rank=1, exit=0)
    node.run(ended)
    node.agent.say(ended)
    assert dict(node.agent.read().ranks) == first


def test_a_newer_agent_takes_over_with_everything_alive(node: Node) -> None:
    spawn = node.order()
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    pid = node.agent.until(lambda ranks: key in ranks)[key]
    successor = Agent(node.folder)
    assert successor.process_list.ranks == ((key, pid),)
    assert node.agent.lines.readline() == b""  # the older one is hung up on
    successor.say(Terminate(key=key, grace_seconds=5.0))
    successor.until(lambda ranks: key not in ranks)
    assert node.exit_status(spawn).signal == "SIGTERM"
    successor.close()


def test_a_rank_that_is_stopped_is_in_the_process_list_as_such_until_it_goes_on(node: Node) -> None:
    spawn = node.order()
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    pid = node.agent.until(lambda ranks: key in ranks)[key]
    os.kill(pid, signal.SIGSTOP)
    assert node.agent.read() == ProcessList(
        spawner_pid=node.agent.process_list.spawner_pid, ranks=((key, pid),), suspended=(key,), stores=(), runs_interpreters=True
    )
    successor = Agent(node.folder)
    assert successor.process_list.suspended == (key,)
    os.kill(pid, signal.SIGCONT)
    assert successor.read().suspended == ()
    os.kill(pid, signal.SIGSTOP)
    assert successor.read().suspended == (key,)
    successor.say(Terminate(key=key, grace_seconds=0.2))  # SIGTERM waits for its end in vain
    successor.until(lambda ranks: key not in ranks)
    assert node.exit_status(spawn).signal == "SIGKILL"
    successor.close()


def test_nonsense_from_an_agent_costs_it_the_connection_and_no_rank_its_life(node: Node) -> None:
    spawn = node.order()
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    alive = node.agent.until(lambda ranks: key in ranks)
    node.agent.socket.sendall(b'{"type": "unheard-of"}\n')
    assert node.agent.lines.readline() == b""
    successor = Agent(node.folder)
    assert dict(successor.process_list.ranks) == alive
    successor.close()


def test_an_end_that_cannot_be_written_stays_in_the_process_list_until_it_is(node: Node) -> None:
    spawn = node.order()
    key, exit_status = RankKey.of(spawn.order.world), RankFolder.at(Path(spawn.order.folder)).exit_status
    node.agent.say(spawn)
    pid = node.agent.until(lambda ranks: key in ranks)[key]
    wait_until(lambda: "step" in node.output(spawn), "a step, after which the rank opens no file", seconds=TIMEOUT_SECONDS)
    with closed_to_writers(exit_status.parent):
        node.agent.say(Terminate(key=key, grace_seconds=5.0))
        wait_until(lambda: f"cannot write {exit_status}" in node.folder.spawner_log.read_text(), "the complaint", seconds=TIMEOUT_SECONDS)
        successor = Agent(node.folder)
        assert successor.process_list.ranks == ((key, pid),)
    successor.until(lambda ranks: key not in ranks)
    assert node.exit_status(spawn).signal == "SIGTERM"
    successor.close()


def test_a_full_disk_under_its_log_ends_no_rank(on_a_full_disk: Node) -> None:
    """A job that filled its node's disk ended all others there: the spawner could not even say that it could not write."""
    node = on_a_full_disk
    ending, living = node.order(0), node.order(1)
    for spawn in (ending, living):
        node.agent.say(spawn)
    ranks = node.agent.until(lambda ranks: len(ranks) == 2)
    wait_until(lambda: "step" in node.output(ending), "a step, after which the rank opens no file", seconds=TIMEOUT_SECONDS)
    with closed_to_writers(Path(ending.order.folder)):
        node.agent.say(Terminate(key=RankKey.of(ending.order.world), grace_seconds=5.0))
        wait_until(lambda: not is_pid_alive(ranks[RankKey.of(ending.order.world)]), "the end of the one", seconds=TIMEOUT_SECONDS)
        node.agent.say(living)  # answered with a process list: it listens still
        assert set(dict(node.agent.read().ranks)) == set(ranks)
    node.agent.until(lambda ranks: RankKey.of(ending.order.world) not in ranks)
    assert node.exit_status(ending).signal == "SIGTERM"
    assert is_pid_alive(ranks[RankKey.of(living.order.world)])
    assert node.process.poll() is None


@pytest.mark.parametrize(("crash", "ordered"), [(signal.SIGKILL, True), (signal.SIGSEGV, False)])
def test_a_crash_after_the_order_to_end_is_still_the_ranks_own(node: Node, crash: signal.Signals, ordered: bool) -> None:
    spawn = node.order(ignore_sigterm=1)
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    pid = node.agent.until(lambda ranks: key in ranks)[key]
    wait_until(lambda: ignores_sigterm(pid), "its deafness to SIGTERM", seconds=TIMEOUT_SECONDS)
    node.agent.say(Terminate(key=key, grace_seconds=TIMEOUT_SECONDS))
    node.agent.say(spawn)  # answered with a process list: the order before it has been carried out
    node.agent.read()
    os.kill(pid, crash)
    node.agent.until(lambda ranks: key not in ranks)
    assert (node.exit_status(spawn).signal, node.exit_status(spawn).ordered) == (crash.name, ordered)


def ignores_sigterm(pid: int) -> bool:
    ignored = re.search(r"SigIgn:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
    return ignored is not None and bool(int(ignored[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_second_spawner_leaves_the_first_alone(node: Node) -> None:
    second = start_spawner(node.folder, SpawnerOptions("node", FAKE_TRAINER, TIMEOUT_SECONDS))
    assert second.wait(TIMEOUT_SECONDS) == 0
    assert "another spawner" in node.folder.spawner_log.read_text()
    assert node.process.poll() is None


@pytest.mark.parametrize("end", ["message", "signal"])
def test_shutting_down_ends_every_rank_first(node: Node, end: str) -> None:
    spawns = [node.order(rank, ignore_sigterm=rank) for rank in (0, 1)]
    for spawn in spawns:
        node.agent.say(spawn)
    ranks = node.agent.until(lambda ranks: len(ranks) == 2)
    if end == "message":
        node.agent.say(Shutdown(grace_seconds=0.5))
    else:
        node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(TIMEOUT_SECONDS) == 0
    assert not any(psutil.pid_exists(pid) for pid in ranks.values())
    assert not node.folder.spawner_socket.exists()


def test_a_killed_spawner_takes_its_ranks_along_without_anybodys_help(node: Node) -> None:
    spawn = node.order(ignore_sigterm=1)
    key = RankKey.of(spawn.order.world)
    node.agent.say(spawn)
    pid = node.agent.until(lambda ranks: key in ranks)[key]
    wait_until(lambda: "step" in node.output(spawn), "a step", seconds=TIMEOUT_SECONDS)
    node.process.kill()
    wait_until(lambda: not is_pid_alive(pid), "the end of the rank", seconds=TIMEOUT_SECONDS)
    assert not is_pid_alive(pid)


def test_forking_a_rank_is_quick(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """Prints what it measures; every order must end in a rank, however slow this machine is."""
    taken = []
    for rank in range(10):
        spawn = node.order(rank, exit=0)
        ordered = time.perf_counter()
        node.agent.say(spawn)
        node.agent.until(lambda ranks, key=RankKey.of(spawn.order.world): key in ranks)
        taken.append(time.perf_counter() - ordered)
        node.agent.until(lambda ranks: not ranks)
    assert len(taken) == 10
    with capsys.disabled():
        print(f" [order to pid: median {sorted(taken)[5] * 1000:.1f} ms]", end="")


def test_a_trainer_that_cannot_be_loaded_ends_the_spawner_with_an_error(tmp_path: Path) -> None:
    folder = AgentFolder(tmp_path)
    folder.create()
    process = start_spawner(folder, SpawnerOptions("node", "no.such.module", TIMEOUT_SECONDS))
    assert process.wait(TIMEOUT_SECONDS) == 1
    assert "No module named" in folder.spawner_log.read_text()


DAEMON = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as file:
            file.write(str(os.getpid()))
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
os.wait()
"""


def test_no_spawner_of_an_environment_is_root_for_another_users_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would run code of the environment's packages before it forks a rank that becomes the user."""
    with pytest.raises(SystemExit):
        main(["--data", str(tmp_path), "--environment", "packages", "--run-as", "nobody"])
    assert "--environment with --run-as" in capsys.readouterr().err


def test_a_daemon_that_left_the_session_and_cleared_its_environment_ends_with_its_rank(node: Node, tmp_path: Path) -> None:
    """And that of another rank lives on."""
    spawns = [node.order(rank) for rank in (0, 1)]
    daemons = [tmp_path / f"daemon{rank}" for rank in (0, 1)]
    (tmp_path / "run.py").write_text(DAEMON + "import time; time.sleep(600)")
    for spawn, told in zip(spawns, daemons, strict=True):
        node.agent.say(msgspec.structs.replace(spawn, program=(sys.executable, "-u", str(tmp_path / "run.py"), str(told))))
    keys = [RankKey.of(spawn.order.world) for spawn in spawns]
    pids = node.agent.until(lambda ranks: set(keys) <= set(ranks))
    wait_until(lambda: all(told.exists() and told.read_text() for told in daemons), "the daemons", seconds=TIMEOUT_SECONDS)
    first, second = (int(told.read_text()) for told in daemons)
    wait_until(lambda: psutil.Process(first).name() == "sleep" == psutil.Process(second).name(), "their exec", seconds=TIMEOUT_SECONDS)
    leaders = [pids[key] for key in keys]
    assert [tag_of(pid) for pid in leaders] == [tag_of(first), tag_of(second)]
    assert len({tag_of(node.process.pid), tag_of(first), tag_of(second)}) == 3
    node.agent.say(Terminate(key=keys[0], grace_seconds=1.0))
    node.agent.until(lambda ranks: keys[0] not in ranks)
    assert not is_pid_alive(first)
    assert is_pid_alive(second)
    node.agent.say(Terminate(key=keys[1], grace_seconds=1.0))
    node.agent.until(lambda ranks: keys[1] not in ranks)
    assert not is_pid_alive(second)


def test_the_memory_killer_is_told_to_go_by_size_among_ranks(node: Node) -> None:
    """Each rank had a score of its own, one more than the rank before it: of 64 ranks the last one went first unless another one was larger by 63
    thousandths of the machine's memory."""
    spawns = [node.order(rank) for rank in (0, 1, 2)]
    for spawn in spawns:
        node.agent.say(spawn)
    keys = {RankKey.of(spawn.order.world) for spawn in spawns}
    pids = node.agent.until(lambda ranks: keys <= set(ranks))

    def scores() -> set[str]:
        return {Path(f"/proc/{pid}/oom_score_adj").read_text().strip() for pid in pids.values()}

    wait_until(lambda: scores() == {str(RANK_SCORE)}, "one score for all", seconds=TIMEOUT_SECONDS)


def test_a_rank_starts_in_a_group_with_the_memory_limit(tmp_path: Path) -> None:
    groups = tmp_path / "groups"
    groups.mkdir()
    node = Node(tmp_path / "agent", confinement=Confinement(memory_limit=1 << 30, groups=groups))
    try:
        assert node.run(node.order(exit=0)).exit_code == 0
        written = {path.name: path.read_text() for path in (groups / "paceline-job-g1-r0").iterdir()}
        assert written == {"memory.max": str(1 << 30), "cgroup.procs": "0"}  # 0: whoever writes it, which is the rank
    finally:
        node.end()
