"""Takes a stack down when its owner is gone, however it went.

The owner holds the writing end of a pipe, this process reads the other one in a session of its own: even after `kill -9` of the owner the
kernel closes the pipe, the read ends, and what the owner had started is stopped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from paceline.cli.local.layout import Layout
from paceline.cli.local.stack import take_down
from paceline.location import ROOT

#: The longest that a script may take to save, and a minute for the rest.
END_TIMEOUT_S = 3660.0
FORGET = "--forget"


class StackWatchdog:
    """Held by the command that started a private stack; when that command ends, however it ends, the stack is taken down."""

    def __init__(self, layout: Layout, *, forget: bool = False) -> None:
        """Start the watchdog. `forget`: the stack's data folder is removed, too."""
        read, self._write = os.pipe()  # not inheritable: no child of the owner keeps it open
        command = [sys.executable, "-m", "paceline.cli.local.watchdog", str(layout.data), *([FORGET] if forget else [])]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=read, start_new_session=True)
        os.close(read)

    def release(self) -> None:
        """Let the watchdog end the stack, and wait until it has."""
        os.close(self._write)
        self._process.wait(timeout=END_TIMEOUT_S)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # Slurm sends SIGTERM to the owner and to everything else of its job
        signal.signal(number, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 1):
        pass  # the owner never writes: only the end of the pipe counts
    layout = Layout.at(Path(sys.argv[1]))
    try:
        take_down(layout, _quiet)
    finally:
        if FORGET in sys.argv:
            shutil.rmtree(layout.data, ignore_errors=True)


def _quiet(message: str) -> None:
    """Drop messages: their reader is gone."""


if __name__ == "__main__":
    main()
