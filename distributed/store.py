"""The rank's client of the rendezvous store: a `torch.distributed.Store` that speaks `store_wire` over one connection.

Unlike TCPStore it looks up no names, needs no torch in the process that serves it, and is refused once a newer generation exists. A
connection carries one request at a time: a thread that waits in the store uses a clone of it.
"""

from __future__ import annotations

import socket
import threading
import time
from datetime import timedelta
from typing import Protocol

from torch.distributed.distributed_c10d import Store

from paceline.distributed.errors import DistributedError, StoreRefusedError, StoreRequestError, StoreTimeoutError, StoreUnreachableError
from paceline.distributed.store_wire import (
    LENGTH,
    Add,
    Check,
    CompareSet,
    DeleteKey,
    Get,
    Hello,
    Invalid,
    NumKeys,
    Ok,
    Refused,
    Reply,
    Request,
    Set,
    TimedOut,
    Wait,
    decode_reply,
    encode,
)
from paceline.monitoring.backoff import Backoff

CONNECT_TIMEOUT_SECONDS = 60.0
KEY_TIMEOUT = timedelta(minutes=5)
REPLY_TIMEOUT_SECONDS = 30.0  # beyond the time the server itself was asked to wait
FIRST_RETRY_SECONDS = 0.02
LONGEST_RETRY_SECONDS = 1.0


class StoreAddress(Protocol):
    """The store's address, and the token that proves membership of the generation."""

    @property
    def job_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def store_host(self) -> str: ...
    @property
    def store_port(self) -> int: ...
    @property
    def store_token(self) -> str: ...


class RendezvousStore(Store):
    """A connection to the rendezvous store of one generation. Requests raise subclasses of `DistributedError`.

    `connect_timeout`: seconds. `cancelled`: connecting is given up once it is set.
    """

    def __init__(
        self, address: StoreAddress, connect_timeout: float = CONNECT_TIMEOUT_SECONDS, cancelled: threading.Event | None = None
    ) -> None:
        super().__init__()
        self._address = address
        self._key_timeout = KEY_TIMEOUT
        self._lock = threading.Lock()
        self._socket = connect(address, connect_timeout, cancelled or threading.Event())
        try:
            self._ask(Hello(address.job_id, address.generation, address.store_token, connect_timeout), connect_timeout)
        except DistributedError:
            self.close()
            raise

    @property
    def local_host(self) -> str:
        """This machine's address on the route to the store, where other ranks can reach it."""
        return str(self._socket.getsockname()[0])

    # torch's own interface; its bindings pass str for keys, bytes for values and timedelta for timeouts.

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(Set(key, to_bytes(value)))

    def get(self, key: str) -> bytes:
        seconds = self._key_timeout.total_seconds()
        value = self._ask(Get(key, seconds), seconds)
        assert isinstance(value, bytes)
        return value

    def add(self, key: str, value: int) -> int:
        total = self._ask(Add(key, value))
        assert isinstance(total, int)
        return total

    def check(self, keys: list[str]) -> bool:
        return bool(self._ask(Check(tuple(keys))))

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        seconds = (timeout or self._key_timeout).total_seconds()
        self._ask(Wait(tuple(keys), seconds), seconds)

    def compare_set(self, key: str, expected_value: str | bytes, desired_value: str | bytes) -> bytes:
        value = self._ask(CompareSet(key, to_bytes(expected_value), to_bytes(desired_value)))
        assert isinstance(value, bytes)
        return value

    def delete_key(self, key: str) -> bool:
        return bool(self._ask(DeleteKey(key)))

    def num_keys(self) -> int:
        count = self._ask(NumKeys())
        assert isinstance(count, int)
        return count

    def set_timeout(self, timeout: timedelta) -> None:
        self._key_timeout = timeout

    @property
    def timeout(self) -> timedelta:
        return self._key_timeout

    def clone(self) -> RendezvousStore:
        """Open another connection with the same membership."""
        return RendezvousStore(self._address)

    def close(self) -> None:
        self._socket.close()

    def _ask(self, request: Request, seconds: float = 0.0) -> bytes | int | bool | None:
        with self._lock:
            try:
                self._socket.settimeout(seconds + REPLY_TIMEOUT_SECONDS)
                self._socket.sendall(encode(request))
                reply = receive(self._socket)
            except OSError as error:
                where = f"{self._address.store_host}:{self._address.store_port}"
                raise StoreUnreachableError(f"rendezvous store at {where}: {str(error) or type(error).__name__}") from error
        return content(reply)


def connect(address: StoreAddress, timeout: float, cancelled: threading.Event) -> socket.socket:
    """Return a connection to the store, trying for `timeout` seconds, since the agent that serves it may still be starting.

    Raises `StoreUnreachableError` after that, and `StoreRefusedError` once `cancelled` is set.
    """
    deadline = time.monotonic() + timeout
    backoff = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
    while True:
        try:
            connection = socket.create_connection((address.store_host, address.store_port), timeout=timeout)
        except OSError as error:
            pause = backoff.next_seconds()
            if time.monotonic() + pause > deadline:
                where = f"{address.store_host}:{address.store_port}"
                raise StoreUnreachableError(f"no rendezvous store at {where} after {timeout:g} s: {error}") from error
            if cancelled.wait(pause):
                raise StoreRefusedError(
                    f"generation {address.generation} of job {address.job_id} is over: a newer one has begun"
                ) from error
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def receive(connection: socket.socket) -> Reply:
    """Receive and decode one reply."""
    (length,) = LENGTH.unpack(receive_exactly(connection, LENGTH.size))
    return decode_reply(receive_exactly(connection, length))


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """Receive `count` bytes. Raises ConnectionResetError if the store closes the connection before that."""
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionResetError("closed by the agent that serves it")
        received += piece
    return bytes(received)


def content(reply: Reply) -> bytes | int | bool | None:
    """Return the value of a successful reply, or raise the `DistributedError` that the reply stands for."""
    match reply:
        case Ok(value=value):
            return value
        case TimedOut(message=message):
            raise StoreTimeoutError(message)
        case Refused(message=message):
            raise StoreRefusedError(message)
        case Invalid(message=message):
            raise StoreRequestError(message)


def to_bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)
