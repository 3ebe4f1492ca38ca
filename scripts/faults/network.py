"""Nodes in network namespaces of their own, on bridges: several machines on one, whose cables can be cut. Needs root and iproute2."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType

COMMAND_TIMEOUT_S = 20.0


def lacking() -> str | None:
    """Why there can be no namespaces here; None where there can."""
    if shutil.which("ip") is None:
        return "the program ip (iproute2) is not installed"
    return None if os.geteuid() == 0 else "network namespaces need root"


class NetworkError(Exception):
    """The program ip could not do it; says what it was told and what it answered."""


class Network:
    """A bridge for each kind of cable, and one cable of each kind to every node, which knows it as a device of that name. Host 1 is
    outside of all namespaces, for the coordinator. A context manager: leaves nothing behind."""

    def __init__(self, cables: Sequence[str] = ("eth0",)) -> None:
        """At most three; the first kind leads to the coordinator."""
        self._cables = tuple(cables)
        self._mark = f"{os.getpid() % 0xFFFF:04x}"
        self._hosts: dict[str, int] = {}  # of those that are there
        self._numbers: dict[str, int] = {}  # of all that ever were: a node that comes back has its old address
        self._cut: set[str] = set()
        self._laid = contextlib.ExitStack()

    @property
    def outside(self) -> str:
        return self._address(self._cables[0], 1)

    @property
    def nodes(self) -> list[str]:
        return list(self._hosts)

    def __enter__(self) -> Network:
        with contextlib.ExitStack() as laid:
            for cable in self._cables:
                _ip("link", "add", self._bridge(cable), "type", "bridge")
                laid.callback(_ip, "link", "del", self._bridge(cable))
                _ip("addr", "add", f"{self._address(cable, 1)}/24", "dev", self._bridge(cable))
                _ip("link", "set", self._bridge(cable), "up")
            self._laid = laid.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._laid:
            for node in self.nodes:
                self.remove(node)

    def add(self, node: str) -> None:
        _ip("netns", "add", self.namespace(node))
        self._hosts[node] = self._numbers.setdefault(node, len(self._numbers) + 2)
        _ip("-n", self.namespace(node), "link", "set", "lo", "up")
        for cable in self._cables:
            _ip("link", "add", self._link(node, cable), "type", "veth", "peer", "name", cable, "netns", self.namespace(node))
            _ip("-n", self.namespace(node), "addr", "add", f"{self.address(node, cable)}/24", "dev", cable)
            _ip("-n", self.namespace(node), "link", "set", cable, "up")
            _ip("link", "set", self._link(node, cable), "master", self._bridge(cable), "up")

    def remove(self, node: str) -> None:
        """Remove a node's namespace. The node's processes must have ended: a namespace lives as long as they do."""
        for cable in self._cables:
            with contextlib.suppress(NetworkError):  # gone with its namespace
                _ip("link", "del", self._link(node, cable))
        _ip("netns", "del", self.namespace(node))
        del self._hosts[node]
        self._cut.discard(node)

    def has(self, node: str) -> bool:
        return node in self._hosts

    def address(self, node: str, cable: str) -> str:
        return self._address(cable, self._hosts[node])

    def inside(self, node: str, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.namespace(node), *command]

    def kill(self, node: str) -> None:
        """Kill every process in the namespace at once."""
        for pid in _ip("netns", "pids", self.namespace(node)).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def cut(self, node: str, *cables: str) -> float:
        """Cut these cables (default: all) without notice to either end. Returns the moment, by the wall clock."""
        at = time.time()
        for cable in cables or self._cables:
            _ip("link", "set", self._link(node, cable), "down")
        self._cut.add(node)
        return at

    def mend(self, node: str) -> bool:
        """False where nothing was cut."""
        if node not in self._cut:
            return False
        for cable in self._cables:
            _ip("link", "set", self._link(node, cable), "up")
        self._cut.discard(node)
        return True

    def namespace(self, node: str) -> str:
        return f"pcl-{self._mark}-{node}"

    def _bridge(self, cable: str) -> str:
        return f"pcl{self._mark}b{self._cables.index(cable)}"

    def _link(self, node: str, cable: str) -> str:
        """The end outside. The kernel takes at most 15 letters."""
        return f"pcl{self._mark}v{self._hosts[node]}c{self._cables.index(cable)}"

    def _address(self, cable: str, host: int) -> str:
        return f"10.{64 * (1 + self._cables.index(cable)) + os.getpid() % 64}.{os.getpid() // 64 % 256}.{host}"


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if done.returncode != 0:
        raise NetworkError(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout
