"""The rank's end of the rendezvous store: a `torch.distributed.Store` that speaks `store_wire` over one connection.

Unlike TCPStore it looks up no names, needs no torch on the side that serves it, and is refused once a newer generation
exists. One request at a time per connection: whoever waits in a thread of its own clones the store first.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from datetime import timedelta
from typing import Protocol

from torch._C._distributed_c10d import Store

from distributed.errors import DistributedError, StoreRefusedError, StoreRequestError, StoreTimeoutError, StoreUnreachableError
from distributed.store_wire import (
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

CONNECT_TIMEOUT_SECONDS = 60.0
KEY_TIMEOUT = timedelta(minutes=5)
REPLY_TIMEOUT_SECONDS = 30.0  # beyond the time the server itself was asked to wait
FIRST_RETRY_SECONDS = 0.02
LONGEST_RETRY_SECONDS = 1.0


class Address(Protocol):
    """Where the store is and what proves membership of the generation."""

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
    """`cancelled`: gives up connecting once it is set."""

    def __init__(
        self, address: Address, connect_timeout: float = CONNECT_TIMEOUT_SECONDS, cancelled: threading.Event | None = None
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
        """This machine's address on the way to the store: there its peers reach it."""
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
                raise StoreUnreachableError(f"rendezvous store at {where}: {error or type(error).__name__}") from error
        return content(reply)


def connect(address: Address, timeout: float, cancelled: threading.Event) -> socket.socket:
    """A connection within `timeout` seconds, trying again while the agent that serves the store comes up."""
    deadline = time.monotonic() + timeout
    pause = FIRST_RETRY_SECONDS
    while True:
        try:
            connection = socket.create_connection((address.store_host, address.store_port), timeout=timeout)
        except OSError as error:
            if time.monotonic() + pause > deadline:
                where = f"{address.store_host}:{address.store_port}"
                raise StoreUnreachableError(f"no rendezvous store at {where} after {timeout:g} s: {error}") from error
            if cancelled.wait(pause * random.uniform(0.5, 1.0)):
                raise StoreRefusedError(
                    f"generation {address.generation} of job {address.job_id} is over: a newer one has begun"
                ) from error
            pause = min(2 * pause, LONGEST_RETRY_SECONDS)
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection


def receive(connection: socket.socket) -> Reply:
    (length,) = LENGTH.unpack(receive_exactly(connection, LENGTH.size))
    return decode_reply(receive_exactly(connection, length))


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        piece = connection.recv(count - len(received))
        if not piece:
            raise ConnectionResetError("closed by the agent that serves it")
        received += piece
    return bytes(received)


def content(reply: Reply) -> bytes | int | bool | None:
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
