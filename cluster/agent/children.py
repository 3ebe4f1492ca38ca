"""A forked child of the spawner, or of a shim, becomes a process of its own that ends with its parent."""

from __future__ import annotations

import os
import signal

from paceline.cluster.agent.processes import PR_SET_PDEATHSIG, prctl

FAILED_EXIT_CODE = 1
_RESET_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def fork() -> int:
    """Fork as `os.fork` does; signals to the child wait until the child has detached. Before that its handlers are still the spawner's:
    one for SIGTERM would end the ranks beside the child instead of the child."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _RESET_SIGNALS)
    pid = -1
    try:
        pid = os.fork()
    finally:
        if pid != 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _RESET_SIGNALS)
    return pid


def detach(parent_pid: int) -> None:
    """Give this process a session of its own, and let it die with its parent, and so with the spawner, which alone could report how it ended."""
    signal.set_wakeup_fd(-1)
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _RESET_SIGNALS)
    os.setsid()
    die_with(parent_pid)


def die_with(parent_pid: int) -> None:
    """Ask the kernel to end this process with its parent. To be called again after each change of user, with which the kernel forgets
    the request."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died between fork and prctl
        os._exit(FAILED_EXIT_CODE)
