"""Hands on, with real ranks: commands and shells beside them, what they cost the node, who may, and what is left of them whatever dies."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from paceline.cli.local.processes import all_processes
from tests.e2e.stack import ROOT, Stack, wait_until
from tests.ports import free_port
from tests.processes import command_of, resident_bytes

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

WAITING = "import time; print('up', flush=True); time.sleep(3600)\n"
#: A command that leaves a child, and one in a session of its own; the mark finds them.
FAMILY = "setsid sleep {mark} & sleep {mark} & sleep {mark}"
FLOOD_BYTES = 100_000_000


@pytest.fixture(scope="module")
def stack(empty_stack: Stack) -> Stack:
    empty_stack.up(free_port())
    return empty_stack


@pytest.fixture
def job(stack: Stack, tmp_path: Path) -> Iterator[str]:
    """A script of two ranks, on a node each."""
    (tmp_path / "waiting.py").write_text(WAITING)
    spec = {
        "name": "hands",
        "resources": {"nodes": 2},
        "script": {"path": str(tmp_path / "waiting.py"), "grace_seconds": 1},
        "environment": {"variables": {"SETTING": "42"}, "working_directory": str(tmp_path)},
    }
    stack.tidy(2)
    job_id = stack.submit(spec)
    stack.wait_for_state(job_id, "running")
    yield job_id
    stack.cancel(job_id)


def words(stack: Stack, *arguments: str, key: str = "") -> list[str]:
    shared = ["--server", stack.server, "--api-key", key or stack.api_key]
    return [sys.executable, "-m", "paceline.cli.main", "exec", *shared, *arguments]


def run(stack: Stack, *arguments: str, data: bytes = b"", key: str = "") -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"NO_COLOR": "1", "TERM": "dumb"}
    return subprocess.run(words(stack, *arguments, key=key), cwd=ROOT, env=environment, input=data, capture_output=True, timeout=120)


def begin(stack: Stack, *arguments: str) -> subprocess.Popen[bytes]:
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words(stack, *arguments), cwd=ROOT, **pipes)


def running(*command: str) -> list[int]:
    found = []
    for process in all_processes():
        try:
            if process.cmdline() == list(command) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def keepers(stack: Stack) -> list[psutil.Process]:
    return [each for each in stack.processes() if "paceline.cluster.agent.exec_sessions.keeper" in command_of(each)]


def audit(stack: Stack, job_id: str) -> list[str]:
    entries = stack.get("/audit", action="exec", limit=200)["items"]
    return [entry["message"] for entry in reversed(entries) if entry["job_id"] == job_id]


def test_a_command_has_the_ranks_place_and_its_exit_code_comes_back(stack: Stack, job: str, tmp_path: Path) -> None:
    script = "echo $RANK of $WORLD_SIZE, $SETTING, ${PACELINE_RANK_FOLDER:-none}; pwd; echo wrong >&2; exit 3"
    done = run(stack, job, "--rank", "1", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout.decode(), done.stderr) == (3, f"1 of 2, 42, none\n{tmp_path}\n", b"wrong\n")
    assert run(stack, job, "--", "true").returncode == 0
    assert run(stack, job, "--", "false").returncode == 1
    assert run(stack, job, "--", "sh", "-c", "kill -9 $$").returncode == 137
    missing = run(stack, job, "--", "no-such-program")
    assert missing.returncode == 127
    assert b"cannot run no-such-program: there is no such program on this node" in missing.stderr
    shell = run(stack, job, data=b"echo from a shell $((6 * 7))\nexit 5\n")
    assert (shell.returncode, shell.stdout) == (5, b"from a shell 42\n")
    said = audit(stack, job)
    assert re.search(r"admin runs sh -c '.*' beside rank 1 of \S+ on local-\d\Z", said[0])
    assert any(re.search(r"^false beside rank 0, by admin: exit code 1 after \d+ s\Z", line) for line in said)


def test_bytes_pass_unchanged_in_both_directions_and_two_sessions_at_once(stack: Stack, job: str) -> None:
    content = os.urandom(3_000_000)
    first, second = begin(stack, job, "--rank", "0", "--", "cat"), begin(stack, job, "--rank", "0", "--", "rev")
    assert second.communicate(b"abc\n", timeout=60)[0] == b"cba\n"
    assert first.communicate(content, timeout=60)[0] == content
    assert (first.returncode, second.returncode) == (0, 0)


def test_a_flood_of_output_delays_no_heartbeat_and_a_stalled_reader_fills_no_memory(stack: Stack, job: str) -> None:
    flooding = ("head", "-c", str(FLOOD_BYTES), "/dev/zero")
    with begin(stack, job, "--", *flooding) as flood, begin(stack, job, "--rank", "1", "--", "yes") as stalled:
        assert flood.stdout is not None
        ages, seen = [], 0
        while piece := os.read(flood.stdout.fileno(), 1 << 20):
            seen += len(piece)
            if not ages or time.monotonic() - ages[-1][0] > 0.3:
                nodes = stack.get("/cluster/nodes")["items"]
                ages.append((time.monotonic(), max(node["heartbeat_age_seconds"] for node in nodes)))
        assert (seen, flood.wait(30)) == (FLOOD_BYTES, 0)
        assert max(age for _, age in ages) < 5.0, ages  # a beat comes every 2 s
        wait_until("yes runs", lambda: running("yes"), 30)
        before = {each: resident_bytes(each) for each in [*keepers(stack), stack.coordinator()]}
        with pytest.raises(TimeoutError):
            wait_until("memory grows", lambda: any(resident_bytes(each) - size > 20 << 20 for each, size in before.items()), 3)
        stalled.send_signal(signal.SIGINT)  # does not wait behind the output that nobody reads
        _, said = stalled.communicate(timeout=60)
        assert stalled.returncode == 130
        assert b"Ctrl-C again ends the session" in said
        wait_until("yes has ended", lambda: not running("yes"), 30)


@pytest.mark.parametrize("victim", ["client", "keeper", "agent", "coordinator"])
def test_nothing_is_left_of_a_command_whatever_is_killed(stack: Stack, job: str, victim: str) -> None:
    mark = str(100_000 + os.getpid() + ["client", "keeper", "agent", "coordinator"].index(victim))
    client = begin(stack, job, "--rank", "0", "--", "sh", "-c", FAMILY.format(mark=mark))
    wait_until("the command runs", lambda: len(running("sleep", mark)) == 3, 60)
    (keeper,) = keepers(stack)
    node = next(rank["node_name"] for rank in stack.job(job)["ranks"] if rank["rank"] == 0)
    match victim:
        case "client":
            client.kill()
        case "keeper":
            keeper.kill()
        case "agent":
            agents = [each for each in stack.processes() if "paceline.cluster.agent.main" in command_of(each)]
            next(each for each in agents if node in command_of(each)).kill()
        case "coordinator":
            stack.kill_coordinator()
    wait_until("everything has ended", lambda: not running("sleep", mark) and not keepers(stack), 30)
    _, said = client.communicate(timeout=60)
    assert client.returncode == {"client": -signal.SIGKILL, "keeper": 7, "agent": 1, "coordinator": 7}[victim], said
    stack.up(stack.port)
    assert stack.job(job)["state"] in ("running", "recovering")


def test_the_end_of_a_rank_ends_its_sessions_and_is_not_held_up_by_them(stack: Stack, job: str) -> None:
    mark = str(200_000 + os.getpid())
    client = begin(stack, job, "--", "sh", "-c", f"trap '' HUP TERM; sleep {mark} & wait; sleep {mark}")
    wait_until("the command runs", lambda: running("sleep", mark), 60)
    asked = time.monotonic()
    stack.cancel(job)
    stack.wait_for_state(job, "cancelled", timeout=30)
    assert time.monotonic() - asked < 20
    _, said = client.communicate(timeout=30)
    assert client.returncode == 1
    assert b"rank 0 of generation 1 has ended or moved on" in said
    wait_until("the command has ended", lambda: not running("sleep", mark), 30)
    late = run(stack, job, "--", "true")
    assert (late.returncode, b"no rank of it runs" in late.stderr) == (6, True)


def key_of(stack: Stack, name: str, role: str) -> str:
    """An API key of a new user, who makes it in a browser's session."""
    user = stack.client.post("/users", json={"name": name, "role": role}).json()
    link = stack.client.post(f"/users/{user['id']}/login-link").json()["url"]
    with httpx.Client(base_url=f"{stack.server}/api/v1") as browser:
        me = browser.post("/auth/login", json={"token": link.partition("token=")[2]}).json()
        made = browser.post("/keys", json={"name": name, "role": role}, headers={"X-CSRF-Token": me["csrf_token"]})
        assert made.status_code == 201, made.text
        return str(made.json()["key"])


def test_viewers_and_other_members_are_refused_with_the_reason(stack: Stack, job: str) -> None:
    keys = {name: key_of(stack, name, role) for name, role in (("vera", "viewer"), ("max", "member"))}
    viewer, member = (run(stack, job, "--", "true", key=keys[name]) for name in ("vera", "max"))
    assert (viewer.returncode, member.returncode) == (4, 4)
    assert b"signed in as vera with the role viewer" in viewer.stderr
    assert b"is admin's: only admin or an admin may run commands beside its ranks, and you are max, member" in member.stderr
    assert not any("vera" in line or "max" in line for line in audit(stack, job))


def set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Terminal:
    """A terminal in which somebody has typed a command."""

    def __init__(self, command: list[str]) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            set_size(0, 30, 100)
            os.chdir(ROOT)
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell that runs the tests in the background has it ignored
            other_terminal = {"LINES": "24", "COLUMNS": "80"}  # as inherited from a program that had set them
            os.execve(command[0], command, os.environ | other_terminal | {"TERM": "xterm-256color"})
        self._seen = b""

    def resize(self, rows: int, columns: int) -> None:
        set_size(self._master, rows, columns)
        os.kill(self.pid, signal.SIGWINCH)

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def expect(self, text: str, seconds: float = 60) -> None:
        """Wait for a text behind what was expected before."""
        deadline = time.monotonic() + seconds
        while text.encode() not in self._seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self._seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                self._seen += os.read(self._master, 1 << 16)
        self._seen = self._seen.partition(text.encode())[2]

    def wait(self) -> int:
        """The exit code, once everything is read."""
        while True:
            try:
                os.read(self._master, 1 << 16)
            except OSError:
                return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_shell_in_a_terminal_has_its_size_ctrl_c_and_exit_code(stack: Stack, job: str) -> None:
    terminal = Terminal(words(stack, job, "-it", "--", "bash", "--norc"))
    terminal.expect("$ " if os.getuid() else "# ")
    terminal.type("stty size; echo rank $RANK do''ne\n")
    terminal.expect("30 100")
    terminal.expect("rank 0 done")
    terminal.resize(41, 121)
    terminal.type("while [ \"$(stty size)\" != '41 121' ]; do sleep 0.1; done; echo siz''ed\n")
    terminal.expect("sized")
    terminal.type("sleep 4321\n")
    terminal.expect("sleep 4321")
    wait_until("the command in the foreground runs", lambda: running("sleep", "4321"), 30)
    terminal.type("\x03")
    terminal.expect("$ " if os.getuid() else "# ")  # what is typed before a shell has its prompt again may be dropped by the terminal
    terminal.type("echo co''de $?\n")
    terminal.expect("code 130")
    terminal.type("exit 9\n")
    assert terminal.wait() == 9


def test_attach_shows_one_ranks_output_and_detaches_without_harm(stack: Stack, job: str) -> None:
    command = [
        sys.executable,
        "-m",
        "paceline.cli.main",
        "attach",
        "--server",
        stack.server,
        "--api-key",
        stack.api_key,
        job,
        "--rank",
        "1",
    ]
    terminal = Terminal(command)
    terminal.expect("Ctrl-C detaches")
    terminal.expect("up")
    terminal.type("\x03")
    terminal.expect("detached; the job goes on")
    assert terminal.wait() == 130
    assert stack.job(job)["state"] == "running"
