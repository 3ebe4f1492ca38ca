"""The stores of scripts that this node serves, on the spawner's side: a process for each generation, forked with torch imported.

A script's ranks meet in a `torch.distributed.TCPStore`. As under torchrun it belongs to none of them, so that rank 0 may end while others still
set up or read, and the port is bound before anybody is told of it. What is stored is the script's own: a process of its own keeps it, as whom ranks run.
"""

from __future__ import annotations

import os
import signal
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from cluster.agent import ports
from cluster.agent.account import Account
from cluster.agent.children import FAILED_EXIT_CODE, detach, die_with
from cluster.agent.spawner_link import GenerationKey, ServedStore, ServeStore

#: `serve(host, listener)` serves a store at a socket that listens, and returns at once.
Serve = Callable[[str, socket.socket], object]


@dataclass(frozen=True)
class StoreProcess:
    pid: int  # 0: there is none
    store: ServedStore


class StoreProcesses:
    def __init__(self, serve: Serve, account: Account | None) -> None:
        self._serve = serve
        self._account = account
        self._processes: dict[GenerationKey, StoreProcess] = {}

    def stores(self) -> tuple[ServedStore, ...]:
        return tuple(process.store for process in self._processes.values())

    def start(self, asked: ServeStore) -> None:
        """Harmless the second time. What keeps it from being served is told in `stores`."""
        if asked.key in self._processes:
            return
        try:
            with ports.listen(asked.host, None if asked.ports is None else range(*asked.ports)) as listener:
                spawner_pid, pid = os.getpid(), os.fork()
                if pid == 0:
                    self._become_store(asked.host, listener, spawner_pid)
                port = int(listener.getsockname()[1])
        except OSError as error:
            self._processes[asked.key] = StoreProcess(0, ServedStore(key=asked.key, error=str(error)))
        else:
            self._processes[asked.key] = StoreProcess(pid, ServedStore(key=asked.key, port=port))

    def end(self, key: GenerationKey) -> bool:
        """At once. Whether there was one."""
        process = self._processes.pop(key, None)
        if process is not None and process.pid:
            os.kill(process.pid, signal.SIGKILL)  # not yet reaped, so the pid is nobody else's
        return process is not None

    def bury(self, pid: int) -> bool:
        """Whether this process, which has ended, served a store that was still wanted."""
        key = next((key for key, process in self._processes.items() if process.pid == pid), None)
        if key is None:
            return False
        del self._processes[key]
        return True

    def _become_store(self, host: str, listener: socket.socket, spawner_pid: int) -> NoReturn:
        """In the child, right after the fork; never comes back."""
        try:
            detach(spawner_pid)
            _close_all_but(listener)
            if self._account is not None:
                self._account.become()
                die_with(spawner_pid)
            _kept = self._serve(host, listener)
            while True:
                signal.pause()
        except BaseException:  # noqa: BLE001 - the last frame of the process: nothing may unwind into the spawner's loop
            traceback.print_exc()
        finally:
            os._exit(FAILED_EXIT_CODE)


def _close_all_but(listener: socket.socket) -> None:
    """What torch says of each stranger that calls is not for the spawner's log."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, listener.fileno())
    os.closerange(listener.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
