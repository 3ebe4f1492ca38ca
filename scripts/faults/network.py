"""Nodes in network namespaces of their own, on a bridge: several machines on one, whose links can be cut. Needs root and iproute2."""

from __future__ import annotations

import contextlib
import os
import shutil
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


class Network:
    """Host 1 is outside of all namespaces, for the coordinator. A context manager: leaves nothing behind."""

    def __init__(self) -> None:
        self._mark = f"{os.getpid() % 0xFFFF:04x}"
        self._bridge = f"pcl{self._mark}"
        self._hosts: dict[str, int] = {}  # of those that are there
        self._numbers: dict[str, int] = {}  # of all that ever were: a node that comes back has its old address
        self._cut: set[str] = set()
        self._prefix = f"10.{64 + os.getpid() % 64}.{os.getpid() // 64 % 256}"

    @property
    def outside(self) -> str:
        return f"{self._prefix}.1"

    def __enter__(self) -> Network:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("addr", "add", f"{self.outside}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for node in list(self._hosts):
            self.remove(node)
        _ip("link", "del", self._bridge)

    def add(self, node: str) -> None:
        host = self._hosts[node] = self._numbers.setdefault(node, len(self._numbers) + 2)
        _ip("netns", "add", self.namespace(node))
        _ip("link", "add", self._link(node), "type", "veth", "peer", "name", "eth0", "netns", self.namespace(node))
        _ip("-n", self.namespace(node), "addr", "add", f"{self._prefix}.{host}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            _ip("-n", self.namespace(node), "link", "set", device, "up")
        _ip("link", "set", self._link(node), "master", self._bridge, "up")

    def remove(self, node: str) -> None:
        """Its processes must have been ended: a namespace lives as long as they do."""
        with contextlib.suppress(subprocess.CalledProcessError):  # gone with its namespace
            _ip("link", "del", self._link(node))
        _ip("netns", "del", self.namespace(node))
        del self._hosts[node]
        self._cut.discard(node)

    def has(self, node: str) -> bool:
        return node in self._hosts

    def inside(self, node: str, command: Sequence[str]) -> list[str]:
        return ["ip", "netns", "exec", self.namespace(node), *command]

    def cut(self, node: str) -> float:
        """Nothing goes in or out any more, and nobody is told. Returns when."""
        at = time.time()
        _ip("link", "set", self._link(node), "down")
        self._cut.add(node)
        return at

    def mend(self, node: str) -> bool:
        """False where it was not cut."""
        if node not in self._cut:
            return False
        _ip("link", "set", self._link(node), "up")
        self._cut.discard(node)
        return True

    def namespace(self, node: str) -> str:
        return f"pcl-{self._mark}-{node}"

    def _link(self, node: str) -> str:
        return f"pcl{self._mark}v{self._hosts[node]}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=COMMAND_TIMEOUT_S)
