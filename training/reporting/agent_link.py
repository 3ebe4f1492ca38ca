"""The rank's end of the socket to its agent. Training never waits for it: a dead or stuck agent is not noticed.

One background thread keeps the connection: connect, introduce, read requests, and all over again when it breaks. Nothing sent
here is the only copy of anything, so what does not fit into the socket's buffer is thrown away with the connection.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator

import msgspec

from paceline.distributed.abort import GroupAborter
from paceline.monitoring.backoff import Backoff
from paceline.monitoring.lines import LineBuffer, encode_line
from paceline.training.link import (
    Broken,
    CheckpointRequest,
    FromRank,
    GradientsRequest,
    Joined,
    Moving,
    Parked,
    PauseRequest,
    Progress,
    RankHello,
    RankOrder,
    RankPlace,
    Reform,
    Release,
    Stalled,
    ToRank,
    TraceRequest,
    decode_to_rank,
)

FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 2.0
CONNECT_TIMEOUT_SECONDS = 5.0
CLOSE_TIMEOUT_SECONDS = 1.0
#: How long a rank that is ordered out of a rendezvous, or of anything else, may take to come out before it ends itself.
RENDEZVOUS_RELEASE_SECONDS = 5.0
RELEASE_SECONDS = 60.0
READ_BYTES = 1 << 16


class AgentLink:
    """A rank's connection to its agent.

    Holds the agent's requests (`pause_wanted`, `checkpoint_wanted`, `profile_wanted`, `gradients_wanted`, `leave_wanted`, `next_order`), and
    sends the rank's messages.
    """

    def __init__(self, path: str, world: RankPlace) -> None:
        self.pause_wanted = False
        self.checkpoint_wanted = False
        self.profile_wanted: TraceRequest | None = None  # the last one; it stays when it has been obeyed
        self.gradients_wanted: GradientsRequest | None = None  # likewise
        self._path, self._hello = path, hello_of(world)
        self._last_word: Parked | Joined | Broken | None = None
        self._stalled: Stalled | None = None
        self._released = False
        self._order: RankOrder | None = None
        self._ordered = threading.Condition()
        self._aborter: GroupAborter | None = None
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="agent-link", daemon=True)
        self._thread.start()

    def enter(self, world: RankPlace) -> None:
        """Take another place in the world; everything written at the earlier place is complete."""
        hello = hello_of(world)
        if hello != self._hello:
            self._hello, self._last_word, self._stalled = hello, None, None
            self._send(hello)

    def guard(self, aborter: GroupAborter) -> None:
        """The aborter to use once this rank is ordered elsewhere; at once if it already is."""
        with self._ordered:
            self._aborter = aborter
            order = self._newer_order()
        if order is not None and not order.world.at_boundary:
            aborter.abort()

    def send(self, message: Parked | Joined | Broken) -> None:
        """Send a message to the agent, and again to every new agent, until this rank takes another place."""
        self._last_word = message
        self._send(message)

    def stalled(self, message: Stalled | Moving) -> None:
        self._stalled = message if isinstance(message, Stalled) else None
        self._send(message)

    def progress(self, step: int) -> None:
        self._send(Progress(step=step))

    def checkpoint_done(self) -> None:
        self.checkpoint_wanted = False

    @property
    def leave_wanted(self) -> bool:
        """True if this rank has its order for the time after this generation."""
        return self._released or self._newer_order() is not None

    @property
    def released(self) -> bool:
        """True if the job needs this rank no more: the agent said so, or the rank is parked and its job pauses."""
        return self._released or (self.pause_wanted and isinstance(self._last_word, Parked))

    def next_order(self, timeout: float | None) -> RankOrder | None:
        """Wait for this rank's place in a newer generation. Returns None once it is released, or after `timeout` seconds."""
        with self._ordered:
            self._ordered.wait_for(lambda: self.released or self._newer_order(), timeout)
            return self._newer_order()

    def _newer_order(self) -> RankOrder | None:
        order = self._order
        return order if order is not None and order.world.generation > self._hello.generation else None

    def close(self) -> None:
        self._stop.set()
        self._hang_up()
        self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def _run(self) -> None:
        backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        while not self._stop.is_set():
            with contextlib.suppress(OSError, msgspec.DecodeError):  # the agent is away or new: the next connection will tell
                for request in self._conversation():
                    self._obey(request)
                    backoff.reset()
            self._stop.wait(backoff.next_seconds())

    def _conversation(self) -> Iterator[ToRank]:
        """Connect, introduce this rank, yield what the agent asks until it hangs up."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(CONNECT_TIMEOUT_SECONDS)
            connection.connect(self._path)
            connection.settimeout(None)
            self._introduce(connection)
            try:
                yield from read_lines(connection)
            finally:
                self._socket = None

    def _introduce(self, connection: socket.socket) -> None:
        with self._sending:
            connection.sendall(encode_line(self._hello))
            for word in (self._last_word, self._stalled):
                if word is not None:
                    connection.sendall(encode_line(word))
            self._socket = connection

    def _obey(self, request: ToRank) -> None:
        match request:
            case PauseRequest():
                self.pause_wanted = True
                self._wake()
            case Release():
                self._released = True
                self._wake()
            case CheckpointRequest():
                self.checkpoint_wanted = True
            case TraceRequest():
                self.profile_wanted = request
            case GradientsRequest():
                self.gradients_wanted = request
            case Reform(order=order):
                self._reform(order)

    def _wake(self) -> None:
        with self._ordered:
            self._ordered.notify_all()

    def _reform(self, order: RankOrder) -> None:
        """At once, or, where the generation is well, when its ranks have agreed on a step: see `leave_wanted`."""
        with self._ordered:
            newest = self._newer_order()
            if order.world.generation <= (newest.world.generation if newest else self._hello.generation):
                return  # obeyed already, known, or overtaken
            self._order, aborter = order, self._aborter
            self._ordered.notify_all()
        if aborter is not None and not aborter.aborted.is_set() and not order.world.at_boundary:
            aborter.abort()
            threading.Thread(target=end_unless_released, args=(aborter,), name="release", daemon=True).start()

    def _send(self, message: FromRank) -> None:
        data = encode_line(message)
        with self._sending:
            connection = self._socket
            if connection is None:
                return
            try:
                whole = connection.send(data, socket.MSG_DONTWAIT) == len(data)
            except OSError:
                whole = False
            if not whole:
                self._hang_up()

    def _hang_up(self) -> None:
        """Wake the reading thread; it connects anew unless this link is closing."""
        connection = self._socket
        if connection is not None:
            with contextlib.suppress(OSError):  # it is gone already, which is what was wanted
                connection.shutdown(socket.SHUT_RDWR)


def hello_of(world: RankPlace) -> RankHello:
    return RankHello(job_id=world.job_id, generation=world.generation, rank=world.rank, pid=os.getpid(), birth=world.process)


def end_unless_released(aborter: GroupAborter) -> None:
    """A peer that dies in the middle of torch's rendezvous leaves others in it for ever, and nothing there can be broken off; so
    may user code that waits for its own reasons. Such a rank is lost to its job, and says so by ending."""
    limits = (
        (aborter.rendezvous_done, RENDEZVOUS_RELEASE_SECONDS, "a rendezvous"),
        (aborter.exited, RELEASE_SECONDS, "its step, evaluation or save"),
    )
    for event, seconds, place in limits:
        if not event.wait(seconds):
            print(f"ERROR still inside {place} {seconds:g} s after being ordered out of it", file=sys.stderr, flush=True)
            os._exit(1)


def read_lines(connection: socket.socket) -> Iterator[ToRank]:
    lines = LineBuffer()
    while data := connection.recv(READ_BYTES):
        for line in lines.take(data):
            yield decode_to_rank(line)
