"""The shim: the process between the spawner and one rank, which makes the rank's parent its own affair.

Programs signal their parent, its process group, or all of its children; under torchrun that harms their own launcher. The spawner is the
launcher of every job on its node, so each rank has a shim for a parent. It does nothing but wait, and never reaps: it ends after the rank,
whose exit status the kernel then gives to the spawner, the next subreaper above. A shim that is killed takes its rank along.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from paceline.cluster.agent.children import FAILED_EXIT_CODE, die_with, fork

STOPPED, CONTINUED = b"s", b"c"
FORK_SECONDS = 30.0
_PID_BYTES = 4
_ENDED = frozenset({os.CLD_EXITED, os.CLD_KILLED, os.CLD_DUMPED})


@dataclass(frozen=True)
class ShimmedRank:
    """A rank that has just been forked."""

    pid: int
    shim_pid: int
    stops: int  # a descriptor: STOPPED and CONTINUED, of which the kernel tells only a parent; at its end the shim has ended


def fork_rank(become: Callable[[int], NoReturn]) -> ShimmedRank:
    """Fork a rank below a shim. `become` is called in the rank with the pid of its shim, and never returns.

    Raises OSError where a process cannot be had, or not within FORK_SECONDS."""
    reader, writer = os.pipe()
    try:
        spawner_pid, shim_pid = os.getpid(), fork()
        if shim_pid == 0:
            _become_shim(spawner_pid, writer, become)
    except BaseException:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    told = os.read(reader, _PID_BYTES) if poll.poll(FORK_SECONDS * 1000) else b""
    if len(told) < _PID_BYTES:
        os.close(reader)
        os.kill(shim_pid, signal.SIGKILL)  # not reaped before the spawner's next turn, so the pid is still its own
        raise OSError(f"no rank was forked within {FORK_SECONDS:g} s")
    return ShimmedRank(int.from_bytes(told, "big"), shim_pid, reader)


def _become_shim(spawner_pid: int, writer: int, become: Callable[[int], NoReturn]) -> NoReturn:
    """SIGTERM and its kin stay blocked since the fork: a service manager that sends them to every process leaves ranks their grace."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        die_with(spawner_pid)
        own_pid, pid = os.getpid(), os.fork()
        if pid == 0:
            become(own_pid)
        os.closerange(3, writer)
        os.closerange(writer + 1, os.sysconf("SC_OPEN_MAX"))
        os.write(writer, pid.to_bytes(_PID_BYTES, "big"))
        _wait_for(pid, writer)
    except BaseException:  # noqa: BLE001 - the last frame of the process: nothing may unwind into the spawner's loop
        traceback.print_exc()
    finally:
        os._exit(FAILED_EXIT_CODE)


def _wait_for(pid: int, writer: int) -> None:
    """Pass on each stop of a child, until it is a zombie, and leave it one."""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOWAIT).si_code not in _ENDED:  # type: ignore[union-attr]
        change = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
        if change is not None:  # it may have changed again since it was looked at
            with contextlib.suppress(OSError):
                os.write(writer, CONTINUED if change.si_code == os.CLD_CONTINUED else STOPPED)
