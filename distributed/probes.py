"""Probe whether the machine, or the process, of another rank still answers. The kernel answers, even if the process is stopped or busy.

Each rank binds a TCP port on which it does not listen (`HostProbePort`). The kernel of a machine that is up and reachable refuses a
connection to it at once; if no answer comes, the machine or the link is down. An established connection would show that only while data
is in flight on it, and only after retransmissions.

Each process also listens on a port for as long as it lives (`ProcessProbePort`) and accepts no connection. The kernel completes
connections to it while the process lives, however stopped, and refuses them once the process has ended: so a rank that lost a connection
learns which process ended.
"""

from __future__ import annotations

import contextlib
import errno
import select
import socket
import time
from collections.abc import Mapping
from typing import NamedTuple

from paceline.distributed.errors import StoreUnreachableError

#: Between machines that train together an answer takes a millisecond. Probes that were not answered stay open during the next ones.
ATTEMPTS = 3
ATTEMPT_SECONDS = 0.07
#: A process is probed once, while other ranks wait for the result.
PROCESS_PROBE_SECONDS = 0.02
#: A rank probes so many peers, those that follow it in the ring: each rank is probed by as many, and their connections fit its queue.
ASKED_PEERS = 32
_QUEUE = 4 * ASKED_PEERS
_ANSWERS = frozenset({0, errno.ECONNREFUSED, errno.ECONNRESET})


class Endpoint(NamedTuple):
    """The numeric address and port of a probe port."""

    host: str  # a numeric address
    port: int


class HostProbePort:
    """A bound port that refuses connections, by which other ranks probe this machine."""

    def __init__(self, host: str) -> None:
        self._socket = socket.socket(family_of(host), socket.SOCK_STREAM)
        self._socket.bind((host, 0))
        self.endpoint = Endpoint(host, int(self._socket.getsockname()[1]))

    def close(self) -> None:
        self._socket.close()


class ProcessProbePort:
    """A listening port of this process, by which other ranks probe it. It stays open through all generations."""

    def __init__(self) -> None:
        self._listeners: dict[str, socket.socket] = {}

    def at(self, host: str) -> Endpoint:
        """Return the endpoint for peers that reach this machine as `host`.

        Drops the connections that are waiting in the queue: to a caller, a full queue would look like a machine that is down.
        """
        if host not in self._listeners:
            self._listeners[host] = socket.create_server((host, 0), family=family_of(host), backlog=_QUEUE)
            self._listeners[host].setblocking(False)
        listener = self._listeners[host]
        with contextlib.suppress(BlockingIOError):
            while True:
                listener.accept()[0].close()
        return Endpoint(host, int(listener.getsockname()[1]))

    def close(self) -> None:
        for listener in self._listeners.values():
            listener.close()
        self._listeners.clear()


def ended_processes(places: Mapping[int, Endpoint], rank: int) -> tuple[int, ...]:
    """Return the ranks of `places` whose process has ended, as their machines report. At most ASKED_PEERS are probed.

    `places`: the process probe ports of the peers of `rank`, by rank.
    """
    following = sorted(places, key=lambda peer: (peer < rank, peer))[:ASKED_PEERS]
    try:
        return _refused({peer: places[peer] for peer in following})
    except OSError:
        return ()


def _refused(places: Mapping[int, Endpoint]) -> tuple[int, ...]:
    outcomes: dict[int, int] = {}
    deadline = time.monotonic() + PROCESS_PROBE_SECONDS
    with contextlib.ExitStack() as stack:
        poll, calls = select.poll(), {}
        for peer, place in places.items():
            caller = stack.enter_context(socket.socket(family_of(place.host), socket.SOCK_STREAM))
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


def unanswered(places: Mapping[int, Endpoint]) -> tuple[int, ...]:
    """Return the ranks of `places` whose machine answers none of ATTEMPTS probes. Each machine is probed once for all its ranks.

    Returns nothing where this process cannot open sockets (no descriptor is left): no rank is to be blamed for that.
    """
    try:
        return _unanswered(places)
    except OSError:
        return ()


def require_answer(rank: int, store: Endpoint) -> None:
    """Check that the lead node's machine answers before this rank joins ranks that are training. Raises `StoreUnreachableError`."""
    if unanswered({rank: store}):
        raise StoreUnreachableError(
            f"rank {rank} gets no answer from its gang's lead node at {store.host}:{store.port}, where the rendezvous store is; "
            "mend the network between the two nodes, or cordon this one"
        )


def _unanswered(places: Mapping[int, Endpoint]) -> tuple[int, ...]:
    with contextlib.closing(ProbeRound({place.host: place for place in places.values()})) as probes:
        for _ in range(ATTEMPTS):
            probes.ask()
            probes.listen(ATTEMPT_SECONDS)
        return tuple(rank for rank, place in sorted(places.items()) if place.host in probes.silent)


class ProbeRound:
    """Probes in progress to machines that have not answered yet."""

    def __init__(self, places: Mapping[str, Endpoint]) -> None:
        self.silent = dict(places)
        self._calls: dict[int, tuple[str, socket.socket]] = {}
        self._poll = select.poll()

    def ask(self) -> None:
        """Probe every silent machine once more: a packet may be lost, and the kernel sends it again only after a second."""
        for host, place in list(self.silent.items()):
            caller = socket.socket(family_of(host), socket.SOCK_STREAM)
            caller.setblocking(False)
            self._calls[caller.fileno()] = host, caller
            outcome = caller.connect_ex(place)
            if outcome in _ANSWERS:
                self.silent.pop(host)
            elif outcome == errno.EINPROGRESS:
                self._poll.register(caller, select.POLLOUT)

    def listen(self, seconds: float) -> None:
        """Wait for answers for `seconds` at most, and remove the machines that answered from `silent`."""
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


def family_of(host: str) -> socket.AddressFamily:
    """Return the family of an address."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET
