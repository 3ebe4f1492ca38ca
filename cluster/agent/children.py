"""A forked child of the spawner becomes a process of its own that ends with the spawner."""

from __future__ import annotations

import os
import signal

from cluster.agent.processes import PR_SET_PDEATHSIG, prctl

FAILED_EXIT_CODE = 1
_RESET_SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def detach(spawner_pid: int) -> None:
    """A session of its own, and death with the spawner, which alone could tell how it ended."""
    signal.set_wakeup_fd(-1)
    for number in _RESET_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    die_with(spawner_pid)


def die_with(spawner_pid: int) -> None:
    """To be called again after each change of user, with which the kernel forgets it."""
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != spawner_pid:  # it died between fork and prctl
        os._exit(FAILED_EXIT_CODE)
