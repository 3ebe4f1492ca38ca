"""Does the machine of another rank still answer, or its process? Asked of its kernel, so that a stopped or busy process does not matter.

A rank holds a TCP port that it does not listen on (its *landmark*). Who connects there is refused at once by any machine that
lives and can be reached; where nothing comes back, machine or link are gone. An established connection would tell the
same only where something is in flight on it, and only after retransmissions.

It also holds a port on which it listens for as long as it lives (its *presence*), and lets nobody in. There the kernel takes calls for a
process that lives, however stopped, and refuses them for one that has ended: who lost a connection learns whose end it was.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from distributed.errors import StoreUnreachableError

#: Between machines that train together an answer takes a millisecond. Calls that were not answered stay open during the next ones.
ATTEMPTS = 3
ATTEMPT_SECONDS = 0.07
#: Whether a process lives is asked once, while others wait for what we say of it.
PRESENCE_SECONDS = 0.02
#: Of its peers a rank asks so many, those that follow it in the ring: everyone is asked by as many, and their calls lie in its queue.
ASKED_PEERS = 32
_QUEUE = 4 * ASKED_PEERS
_ANSWERS = frozenset({0, errno.ECONNREFUSED, errno.ECONNRESET})


class Place(NamedTuple):
    host: str  # a numeric address
    port: int


class Landmark:
    """A port of our own, for others to be refused at."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(_family(host), socket.SOCK_STREAM)
        self._socket.bind((host, 0))
        self.place = Place(host, int(self._socket.getsockname()[1]))

    def close(self) -> None:
        self._socket.close()


class Presence:
    """Of this process, through all its generations."""

    def __init__(self) -> None:
        self._listeners: dict[str, socket.socket] = {}

    def at(self, host: str) -> Place:
        """Where peers find it, that reach this machine as `host`. Forgets the calls so far: a full queue would look like no machine."""
        if host not in self._listeners:
            self._listeners[host] = socket.create_server((host, 0), family=_family(host), backlog=_QUEUE)
            self._listeners[host].setblocking(False)
        listener = self._listeners[host]
        with contextlib.suppress(BlockingIOError):
            while True:
                listener.accept()[0].close()
        return Place(host, int(listener.getsockname()[1]))

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()


def ended_processes(places: Mapping[int, Place], rank: int) -> tuple[int, ...]:
    """The ranks of `places`, presences of the peers of `rank`, whose process has ended: their machines say so. ASKED_PEERS are asked."""
    following = sorted(places, key=lambda peer: (peer < rank, peer))[:ASKED_PEERS]
    try:
        return _refused({peer: places[peer] for peer in following})
    except OSError:
        return ()


def _refused(places: Mapping[int, Place]) -> tuple[int, ...]:
    outcomes: dict[int, int] = {}
    deadline = time.monotonic() + PRESENCE_SECONDS
    with contextlib.ExitStack() as stack:
        poll, calls = select.poll(), {}
        for peer, place in places.items():
            caller = stack.enter_context(socket.socket(_family(place.host), socket.SOCK_STREAM))
            caller.setblocking(False)
            outcomes[peer] = caller.connect_ex(place)
            if outcomes[peer] == errno.EINPROGRESS:
                calls[caller.fileno()] = peer, caller
                poll.register(caller, select.POLLOUT)
        while calls and (told := poll.poll(max(0.0, deadline - time.monotonic()) * 1000)):
            for descriptor, _ in told:
                peer, caller = calls.pop(descriptor)
                poll.unregister(descriptor)
                outcomes[peer] = caller.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return tuple(sorted(peer for peer, outcome in outcomes.items() if outcome == errno.ECONNREFUSED))


def unanswered(places: Mapping[int, Place]) -> tuple[int, ...]:
    """The ranks of `places` whose machine gives no answer to any of ATTEMPTS calls. Each machine is asked once for all its ranks. Where
    this process cannot call at all (no descriptor is left) nobody is accused."""
    try:
        return _unanswered(places)
    except OSError:
        return ()


def require_answer(rank: int, store: Place) -> None:
    """Before a rank keeps others waiting that train already. Raises StoreUnreachableError."""
    if unanswered({rank: store}):
        raise StoreUnreachableError(
            f"rank {rank} gets no answer from its gang's lead node at {store.host}:{store.port}, where the rendezvous store is; "
            "mend the network between the two nodes, or cordon this one"
        )


def _unanswered(places: Mapping[int, Place]) -> tuple[int, ...]:
    with contextlib.closing(Survey({place.host: place for place in places.values()})) as survey:
        for _ in range(ATTEMPTS):
            survey.ask()
            survey.listen(ATTEMPT_SECONDS)
        return tuple(rank for rank, place in sorted(places.items()) if place.host in survey.silent)


class Survey:
    """Calls under way to machines that have not answered yet."""

    def __init__(self, places: Mapping[str, Place]) -> None:
        self.silent = dict(places)
        self._calls: dict[int, tuple[str, socket.socket]] = {}
        self._poll = select.poll()

    def ask(self) -> None:
        """Once more: a packet may get lost, and the kernel sends it again only after a second."""
        for host, place in list(self.silent.items()):
            caller = socket.socket(_family(host), socket.SOCK_STREAM)
            caller.setblocking(False)
            self._calls[caller.fileno()] = host, caller
            outcome = caller.connect_ex(place)
            if outcome in _ANSWERS:
                self.silent.pop(host)
            elif outcome == errno.EINPROGRESS:
                self._poll.register(caller, select.POLLOUT)

    def listen(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.silent and (left := deadline - time.monotonic()) > 0:
            for descriptor, _ in self._poll.poll(left * 1000):
                host, caller = self._calls[descriptor]
                self._poll.unregister(descriptor)
                if caller.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) in _ANSWERS:
                    self.silent.pop(host, None)

    def close(self) -> None:
        for _, caller in self._calls.values():
            caller.close()


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
