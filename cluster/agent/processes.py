"""Finding and ending every process of a rank, from /proc. Linux only, as are sessions and PR_SET_PDEATHSIG.

A rank leads a session of its own; most of what it starts stays in it. A process that leaves the session (a daemon) still carries
the rank's folder in its environment, and one that clears it still carries the rank's tag, a limit of resources that the kernel hands down to
every child.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import get_args

from paceline.cluster.stacks import Part
from paceline.distributed.env import RANK_FOLDER

#: In the variables of a spawner, so that what its ranks have forked can be told by it: /proc shows a fork those of the program that it is of.
AGENT_DATA_VARIABLE = "PACELINE_AGENT_DATA"

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = -1
_MAX_SWEEPS = 20  # a process may fork while it is being killed; each sweep finds what the last one missed


#: The kernel's out-of-memory killer takes the highest first: a rank before anything of ours. One for all ranks, so that it takes the largest: a
#: unit is a thousandth of the machine's memory, or of the control group's.
RANK_SCORE = 500
#: Of the store of a script, which the script may fill. A fork of the spawner counts all that the two share, which may be more than a small rank has.
STORE_SCORE = RANK_SCORE - 10
_OWN_SCORE = -900
#: RLIMIT_LOCKS, which Linux hands down and shows, and by which it has limited nothing since 2.4. Python has no name for it.
_TAG_LIMIT = 10
_TAG = re.compile(rb"^Max file locks +(\d+) ", re.MULTILINE)


def prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_long(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def spare_from_memory_killer() -> None:
    """Ask the kernel to end a rank rather than this process and its children. Only root may ask: without that nothing is changed."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(str(_OWN_SCORE))


def allow_tracing() -> None:
    """Let every process of the same user read this one's memory, as py-spy does. Where Yama restricts ptrace, as on Ubuntu, only a
    parent may otherwise, and py-spy is none. The permission survives an execve; children start without it."""
    with contextlib.suppress(OSError):  # a kernel without Yama: nothing is restricted
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)


def offer_to_memory_killer(score: int) -> None:
    """Let the memory killer end this process, and its children, before ours."""
    with contextlib.suppress(OSError):  # a container that hides /proc/self: then ranks are chosen by size alone
        Path("/proc/self/oom_score_adj").write_text(str(score))


def compute_in_batches() -> None:
    """Let a thread of this process, and of its children, that wakes up wait for the end of another one's turn (Linux's SCHED_BATCH).

    Ranks on CPUs hand each exchange from thread to thread, thousands of times a second, and as ordinary processes the threads of one rank take the
    processor from the other in the middle of its step. Ordinary processes, as the agent is one, still go before them; all get the same shares.
    """
    with contextlib.suppress(OSError):  # a container may forbid it: they compute all the same
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def set_tag(tag: int) -> None:
    """Mark this process, and its children, whatever they execute, with a number that `members` finds them by."""
    with contextlib.suppress(OSError, ValueError):  # a lower limit was set before: they are found by session and environment alone
        resource.setrlimit(_TAG_LIMIT, (tag, tag))


def members(leader: int, folder: str, tag: int | None = None) -> list[int]:
    """Every living process of the rank with pid `leader`, the rank itself included.

    `tag`: the one that the rank was started with, which counts for descendants of the calling process."""
    mine = f"{RANK_FOLDER}={folder}".encode()
    found = [pid for pid in _processes() if session_of(pid) == leader or mine in _environment(pid)]
    if tag is None:
        return found
    return found + [pid for pid in descendants(os.getpid()) if pid not in found and tag_of(pid) == tag and session_of(pid) is not None]


def in_session(leader: int) -> list[int]:
    """Every living process in the session of the rank with pid `leader`, which may itself have ended."""
    return [pid for pid in _processes() if session_of(pid) == leader]


def programs_of(leader: int) -> list[int]:
    """The processes in a rank's session that get the signal to end: the rank, and every program that it has started there.

    Left out are the helpers of a Python program, which end with it: its forks, and the processes of `multiprocessing`. A worker of a
    DataLoader that ends before its program raises in the middle of a save. A program in a session of its own is left to
    the process that started it: torchrun passes SIGTERM on to its workers, and a second SIGTERM would interrupt how they handle the first."""
    session = set(in_session(leader))
    children = _children(session)
    heads = [pid for pid in session if pid == leader or _parent(pid) not in session]
    found = sorted(heads, key=lambda pid: pid != leader)
    for pid in found:  # grows while it is walked
        found += [child for child in children.get(pid, []) if not _is_helper(child, pid)]
    return found


def python_processes_of(leader: int) -> dict[int, Part]:
    """The Python processes of a rank, each with its part: programs first, then launchers, which run another Python program, then helpers, as
    the workers of a DataLoader."""
    tree = [leader, *descendants(leader)]
    python = [pid for pid in tree if _is_python(pid)]
    helpers = {pid for pid in python if pid != leader and _is_helper(pid, _parent(pid))}
    launchers = {parent for pid in python if pid not in helpers for parent in _ancestors(pid, set(tree))}
    parts: dict[int, Part] = {pid: "helper" if pid in helpers else "launcher" if pid in launchers else "program" for pid in python}
    return dict(sorted(parts.items(), key=lambda each: get_args(Part).index(each[1])))


def _ancestors(pid: int, among: set[int]) -> list[int]:
    found: list[int] = []
    while (pid := _parent(pid)) in among:
        found.append(pid)
    return found


def _is_python(pid: int) -> bool:
    return _executable(pid).rpartition("/")[2].startswith("python") and session_of(pid) is not None


def command_of(pid: int) -> str:
    """The command line of a process; empty for one that is gone."""
    return _read(Path(f"/proc/{pid}/cmdline")).replace(b"\0", b" ").decode("utf-8", "replace").strip()


def cpu_seconds_of(leaders: Iterable[int]) -> dict[int, float]:
    """By leader, the CPU seconds of all living processes of its rank, with those of their children that have ended."""
    stats = {pid: fields for pid in _processes() if (fields := _stat(pid))}
    ticks = {pid: sum(map(int, fields[11:15])) for pid, fields in stats.items()}
    totals = dict.fromkeys(leaders, 0)
    for pid, fields in stats.items():
        session = int(fields[3])
        owner = session if session in totals else _owner(pid, totals, stats)
        if owner is not None:
            totals[owner] += ticks[pid]
    return {leader: total / os.sysconf("SC_CLK_TCK") for leader, total in totals.items()}


def _owner(pid: int, leaders: Mapping[int, int], stats: Mapping[int, list[bytes]]) -> int | None:
    """The leader that a process descends from."""
    while pid in stats:
        if pid in leaders:
            return pid
        pid = int(stats[pid][1])
    return None


def _is_helper(pid: int, parent: int) -> bool:
    program, command = _executable(pid), _read(Path(f"/proc/{pid}/cmdline"))
    if not program.rpartition("/")[2].startswith("python") or program != _executable(parent):
        return False
    return command == _read(Path(f"/proc/{parent}/cmdline")) or b"from multiprocessing." in command


def _executable(pid: int) -> str:
    """The file that the process runs; empty for one that is gone, or another user's."""
    try:
        return os.readlink(f"/proc/{pid}/exe")
    except OSError:
        return ""


def _children(pids: Iterable[int]) -> dict[int, list[int]]:
    """The children among these processes, by their parent."""
    children: dict[int, list[int]] = {}
    for pid in pids:
        children.setdefault(_parent(pid), []).append(pid)
    return children


def descendants(ancestor: int) -> list[int]:
    """Every process that descends from `ancestor`, those whose own parents have ended included where `ancestor` adopts them."""
    children = _children(_processes())
    found = list(children.get(ancestor, []))
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def tag_of(pid: int) -> int | None:
    """The tag of a process; None for one without, or one that is gone."""
    found = _TAG.search(_read(Path(f"/proc/{pid}/limits")))
    return int(found[1]) if found else None


def abandoned_members(leader: int, folder: str, agent_data: str) -> list[int]:
    """The living processes of a rank whose spawner is dead. `leader` may by now be the pid of an unrelated process, so each must carry
    our marks."""
    folder_mark = f"{RANK_FOLDER}={folder}".encode()
    data_mark = f"{AGENT_DATA_VARIABLE}={agent_data}".encode()
    return [
        pid
        for pid in _processes()
        if folder_mark in (environment := _environment(pid)) or (data_mark in environment and session_of(pid) == leader)
    ]


def send_signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_strays(leader: int, folder: str, tag: int | None = None) -> None:
    """Send SIGKILL to the processes that an exited rank left running."""
    for _ in range(_MAX_SWEEPS):
        strays = members(leader, folder, tag)
        if not strays:
            return
        send_signal(strays, signal.SIGKILL)


def out_of_memory_kills() -> int:
    """How often the kernel's out-of-memory killer has struck in this control group, and on this machine."""
    return sum(_count(path) for path in (*_memory_event_files(), Path("/proc/vmstat")))


def _memory_event_files() -> Iterator[Path]:
    for line in _read(Path("/proc/self/cgroup")).decode().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            yield Path(f"/sys/fs/cgroup{group}/memory.events")
        elif "memory" in controllers.split(","):
            yield Path(f"/sys/fs/cgroup/memory{group}/memory.oom_control")


def _count(path: Path) -> int:
    found = re.search(rb"^oom_kill (\d+)$", _read(path), re.MULTILINE)
    return int(found.group(1)) if found else 0


def _processes() -> list[int]:
    own = os.getpid()
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]


def with_variables(wanted: Mapping[str, str], named: str | None = None) -> list[int]:
    """Every living process that was started with all of these variables, and with one that is called `named`."""
    marks = {f"{name}={value}".encode() for name, value in wanted.items()}
    beginning = b"" if named is None else f"{named}=".encode()
    found = {pid: set(_environment(pid)) for pid in _processes()}
    return [
        pid
        for pid, variables in found.items()
        if marks <= variables and any(each.startswith(beginning) for each in variables) and session_of(pid) is not None
    ]


def carries(pid: int, folder: str) -> bool:
    """Whether a process has the rank with this folder in its environment."""
    return f"{RANK_FOLDER}={folder}".encode() in _environment(pid)


def session_of(pid: int) -> int | None:
    """The session of a living process; None for one that is gone or a zombie."""
    fields = _stat(pid)
    return int(fields[3]) if fields and fields[0] not in (b"Z", b"X") else None


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on; empty for a process that is gone."""
    stat = _read(Path(f"/proc/{pid}/stat"))
    return stat[stat.rfind(b")") + 2 :].split()  # the name in brackets may itself hold spaces


def _environment(pid: int) -> list[bytes]:
    return _read(Path(f"/proc/{pid}/environ")).split(b"\0")


def _read(path: Path) -> bytes:
    """The contents of a file in /proc; empty where the process is gone, is another user's, or the kernel has no such file."""
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
