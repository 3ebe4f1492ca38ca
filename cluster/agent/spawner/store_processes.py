"""The stores of scripts that this node serves, on the spawner's side: a process for each generation, forked with torch imported.

A script's ranks meet in a `torch.distributed.TCPStore`. As under torchrun it belongs to none of them, so that rank 0 may end while other
ranks still set up or read, and the port is bound before any rank learns it. The stored data belongs to the script: a process of its own
keeps it, as the user that ranks run as.
"""

from __future__ import annotations

import os
import signal
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from paceline.cluster.agent import ports
from paceline.cluster.agent.account import Account
from paceline.cluster.agent.children import FAILED_EXIT_CODE, detach, die_with, fork
from paceline.cluster.agent.processes import STORE_SCORE, offer_to_memory_killer
from paceline.cluster.agent.spawner_link import ServedStore, ServeStore
from paceline.cluster.protocol import GenerationKey

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
        """Start to serve a store. Harmless the second time. The reason of a failure is in `stores`."""
        if asked.key in self._processes:
            return
        try:
            with ports.listen(asked.host, None if asked.ports is None else range(*asked.ports)) as listener:
                spawner_pid, pid = os.getpid(), fork()
                if pid == 0:
                    self._become_store(asked.host, listener, spawner_pid)
                port = int(listener.getsockname()[1])
        except OSError as error:
            self._processes[asked.key] = StoreProcess(0, ServedStore(key=asked.key, error=str(error)))
        else:
            self._processes[asked.key] = StoreProcess(pid, ServedStore(key=asked.key, port=port))

    def end(self, key: GenerationKey) -> bool:
        """End a store at once. Returns whether there was one."""
        process = self._processes.pop(key, None)
        if process is not None and process.pid:
            os.kill(process.pid, signal.SIGKILL)  # not yet reaped, so no other process has the pid
        return process is not None

    def mark_exited(self, pid: int) -> bool:
        """Note the end of a process. Returns whether it served a store that was still wanted."""
        key = next((key for key, process in self._processes.items() if process.pid == pid), None)
        if key is None:
            return False
        del self._processes[key]
        return True

    def _become_store(self, host: str, listener: socket.socket, spawner_pid: int) -> NoReturn:
        """Serve a store in the child, right after the fork; never returns."""
        try:
            detach(spawner_pid)
            offer_to_memory_killer(STORE_SCORE)  # before it is another user
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
    """Close all descriptors except the listener, and redirect the output: torch's messages about unknown peers do not belong into the
    spawner's log."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, listener.fileno())
    os.closerange(listener.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
