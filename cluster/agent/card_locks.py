"""A lock for each card that this node offers: two agents of a machine never offer the same one.

A lock is the name of an abstract Unix socket. The kernel gives it to one process of the machine, whatever its user, and takes it back when
the last process that has it open ends: no file is left, none can be swept away, and no user needs rights in another's folder. The spawners
inherit the locks, since ranks outlive an agent that dies: their cards stay theirs until they end, and the next agent of the same
data folder adopts both: spawners send their locks to whoever connects (`living_spawners`). Containers that have a network of their own do not see each other's locks.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from paceline.cluster.agent.errors import CardTakenError
from paceline.monitoring.cards import listed
from paceline.monitoring.samples import Gpu

_PREFIX = "\0paceline/card/"
#: Askers that may wait until the spawner has taken note of them; before it runs nobody does.
_BACKLOG = 128
_ASK_TIMEOUT_SECONDS = 2.0
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid
_MODULES = ("paceline.cluster.agent.main", "paceline.cluster.agent.spawner")


@dataclass(frozen=True)
class Holder:
    """The process that has locked a card, as far as this user may know: an agent, or the spawner that an agent has left behind."""

    pid: int | None = None
    uid: int | None = None
    name: str | None = None  # of its node
    data: str | None = None

    def __str__(self) -> str:
        if self.pid is None:
            return "another agent"
        name = f" {self.name}" if self.name else ""
        user = f" of user {self.uid}" if self.uid != os.getuid() else ""
        folder = f", data folder {self.data}" if self.data else ""
        return f"the agent{name} (process {self.pid}{user}{folder})"


class CardLocks:
    """The locks of the agent whose data folder is `data`. They are held as long as this object is, and by the spawners that got them."""

    def __init__(self, data: Path) -> None:
        self._data = data.absolute()
        self._cards: tuple[Gpu, ...] = ()
        self._sockets: dict[str, socket.socket] = {}

    def take_over(self, locks: Iterable[socket.socket]) -> None:
        """Hold locks that a spawner of this data folder has sent."""
        for lock in locks:
            uuid = os.fsdecode(lock.getsockname()).removeprefix(_PREFIX)
            if uuid in self._sockets:
                lock.close()  # another spawner has sent it too
            else:
                self._sockets[uuid] = lock

    def hold(self, cards: Sequence[Gpu], count: int) -> tuple[Gpu, ...]:
        """Lock the first `count` of these cards that no other agent has, and return them; locks of other cards are given up. Raises CardTakenError,
        with no lock held, where they are too few."""
        taken: dict[Gpu, Holder] = {}
        mine: list[Gpu] = []
        for card in cards:
            if len(mine) == count:
                break
            holder = self._lock(card)
            if holder is None:
                mine.append(card)
            else:
                taken[card] = holder
        if len(mine) < count:
            self.close()
            raise CardTakenError(_refusal(cards, taken, count))
        self._cards = tuple(mine)
        for uuid in self._sockets.keys() - {card.uuid for card in mine}:
            self._sockets.pop(uuid).close()
        return self._cards

    def renew(self) -> tuple[int, ...]:
        """Lock again what an ended spawner had held for an agent before this one; the descriptors for the next spawner. Raises
        CardTakenError."""
        self.hold(self._cards, len(self._cards))
        answer_for(self._sockets.values())
        return tuple(lock.fileno() for lock in self._sockets.values())

    def close(self) -> None:
        for lock in self._sockets.values():
            lock.close()
        self._sockets.clear()

    def _lock(self, card: Gpu) -> Holder | None:
        """Lock a card. Returns the holder if that is another agent. A spawner of this data folder counts as this agent."""
        if card.uuid in self._sockets:
            return None
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            lock.bind(_PREFIX + card.uuid)
            lock.listen(_BACKLOG)
        except OSError:
            lock.close()
            holder = _holder(card)
            return None if holder.data == str(self._data) and holder.uid == os.getuid() else holder
        self._sockets[card.uuid] = lock
        return None


def inherit(descriptors: Sequence[int]) -> list[socket.socket]:
    """Take over locks in a spawner, under its own pid. What it forks must close them."""
    locks = received(descriptors)
    answer_for(locks)
    return locks


def received(descriptors: Sequence[int]) -> list[socket.socket]:
    """The locks behind descriptors that another process has handed on."""
    locks = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    for lock in locks:
        lock.set_inheritable(False)
        lock.setblocking(False)
    return locks


def send_with(agent: socket.socket, content: bytes, locks: Sequence[socket.socket]) -> None:
    """Send `content`, and the locks along with it. Raises BlockingIOError or ConnectionError."""
    sent = socket.send_fds(agent, [content], [lock.fileno() for lock in locks]) if locks else 0
    agent.sendall(content[sent:])


def answer_for(locks: Iterable[socket.socket]) -> None:
    """Make this process the one that those who ask for the holder are told of: it is the last one that has called this."""
    for lock in locks:
        lock.listen(_BACKLOG)


def dismiss_asker(lock: socket.socket) -> None:
    """Close a connection of a process that has asked who holds the lock: the kernel has answered already."""
    with contextlib.suppress(OSError):  # it has gone again
        lock.accept()[0].close()


def _holder(card: Gpu) -> Holder:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asker:
        asker.settimeout(_ASK_TIMEOUT_SECONDS)
        try:
            asker.connect(_PREFIX + card.uuid)
            pid, uid, _ = _CREDENTIALS.unpack(asker.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
        except OSError:
            return Holder()
    words = _command(pid)
    if len(words) > 1 and "paceline.cluster.agent.spawner" in words and (agent := _agent_of(pid, words)) is not None:
        pid, words = agent
    known = any(module in words for module in _MODULES)
    return Holder(pid, uid, _option("--name", words) if known else None, _option("--data", words) if known else None)


def _agent_of(spawner: int, words: list[str]) -> tuple[int, list[str]] | None:
    """The living agent that has started a spawner."""
    try:
        parent = int(Path(f"/proc/{spawner}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None
    found = _command(parent)
    return (parent, [*found, "--data", str(_option("--data", words))]) if "paceline.cluster.agent.main" in found else None


def _command(pid: int) -> list[str]:
    """The command line of a process; empty where it is gone or hidden."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return []


def _option(name: str, words: list[str]) -> str | None:
    """The value of the last option of this name, written `--name VALUE` or `--name=VALUE`."""
    values = [after for word, after in pairwise(words) if word == name]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{name}=")]
    return values[-1] if values else None


def _refusal(cards: Sequence[Gpu], taken: dict[Gpu, Holder], count: int) -> str:
    by_holder = {holder: [card for card in taken if taken[card] == holder] for holder in taken.values()}
    holders = "; ".join(
        f"{listed(theirs)} {'is' if len(theirs) == 1 else 'are'} offered by {holder} already" for holder, theirs in by_holder.items()
    )
    free = [str(card.index) for card in cards if card not in taken]
    if len(cards) == count and free:
        way_out = f"offer the others with --gpus {','.join(free)}, or stop that agent"
    elif len(cards) > count and free:
        way_out = f"of {len(cards)} cards {len(free)} {'is' if len(free) == 1 else 'are'} free: say --slots {len(free)}, or stop that agent"
    else:
        way_out = "stop that agent, name other cards, or offer CPU slots with --gpus none"
    return f"{holders}; {way_out}"
