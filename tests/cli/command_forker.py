"""Commands as processes of their own that start in no time: forked from one that has imported the whole command line.

A start of the interpreter with all imports takes half a second, and there are hundreds in the tests of the command line. A forked command has
its own arguments, folder, environment and standard streams, and ends as any program does; only what is read while modules are imported is not
its own. Tests of that start a program anew, see `Paceline.command`.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
MOST_BYTES = 1 << 17  # of an order; a datagram has a limit
NUMBER = "q"
#: An address at which nothing listens.
NOBODY = "http://127.0.0.1:9"
#: What the interpreter itself reads as it starts: such commands are not forked.
FOR_THE_INTERPRETER = ("PYTHON", "LC_", "LANG")


class Order(NamedTuple):
    """What to run, and where."""

    arguments: Sequence[str]
    folder: str
    environment: dict[str, str]


class CommandForker:
    """The process to fork from, and the way to ask it. One command at a time."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.cli.command_forker", str(theirs.fileno())], cwd=ROOT, pass_fds=[theirs.fileno()]
            )

    def run(self, order: Order, stdin: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` does with captured text. Raises subprocess.TimeoutExpired."""
        with tempfile.TemporaryFile() as fed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            fed.write(stdin.encode())
            fed.seek(0)
            socket.send_fds(self._channel, [json.dumps(order).encode()], [fed.fileno(), out.fileno(), err.fileno()])
            pid = self._number()
            self._channel.settimeout(timeout)
            try:
                exit_code = self._number()
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._channel.settimeout(None)
                self._number()
                raise subprocess.TimeoutExpired(list(order.arguments), timeout) from None
            finally:
                self._channel.settimeout(None)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(order.arguments, exit_code, out.read().decode(), err.read().decode())

    def _number(self) -> int:
        (number,) = array.array(NUMBER, self._channel.recv(8))
        return number

    def close(self) -> None:
        self._channel.close()
        self._process.wait(timeout=10)


def can_fork(order: Order) -> bool:
    """Whether a forked command is the same as one that is started."""
    asked = {name for name, value in order.environment.items() if os.environ.get(name) != value}
    return len(json.dumps(order)) < MOST_BYTES and not any(name.startswith(FOR_THE_INTERPRETER) for name in asked - {"PYTHONPATH"})


def serve(channel: socket.socket) -> Order | None:
    """Fork for each order. Returns it in the command's own process, and None where there are no more."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MOST_BYTES, 3)
        if not message:
            return None
        pid = os.fork()
        if not pid:
            channel.close()
            for target, descriptor in enumerate(descriptors):
                os.dup2(descriptor, target)
                os.close(descriptor)
            return Order(*json.loads(message))
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(array.array(NUMBER, [pid]).tobytes())
        _, status = os.waitpid(pid, 0)
        channel.send(array.array(NUMBER, [os.waitstatus_to_exitcode(status)]).tobytes())


def become(order: Order) -> None:
    """What the interpreter does before it runs a program."""
    os.chdir(order.folder)
    os.environ.clear()
    os.environ.update(order.environment)
    time.tzset()
    sys.modules["__main__"].__spec__ = find_spec("paceline.cli.main")  # whose workers import it, see multiprocessing.spawn
    sys.argv[1:] = order.arguments
    sys.path[0] = order.folder
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115 - they stay open


def import_all() -> None:
    """Also what is imported by the first request and by the first help: both are tried."""
    from paceline import cli
    from paceline.cli.app import run

    for module in pkgutil.walk_packages(cli.__path__, f"{cli.__name__}."):
        importlib.import_module(module.name)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        run(["jobs", "--server", NOBODY, "--api-key", "pk_test"])
        run(["--help"])


def main() -> None:
    from paceline.cli.main import main as run

    import_all()
    gc.collect()
    gc.freeze()
    order = serve(socket.socket(fileno=int(sys.argv.pop())))
    if order is not None:
        become(order)
        run()


if __name__ == "__main__":
    main()
