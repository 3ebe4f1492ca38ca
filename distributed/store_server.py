"""The rendezvous store of a gang, served by the agent of its first node. Pure asyncio: no torch on this side.

One namespace per (job, generation); it lives while that generation is desired. The messages are in `store_wire`.

Wire format, over TCP, both ways:

    frame    = length (4 bytes, big-endian) | payload, at most 16 MiB; of the hello at most 4 KiB
    payload  = msgpack array [kind, field, ...]; kind is the class name in `store_wire` in lower case

A client sends `hello` once and then one request at a time, each answered by exactly one reply, in order:

    request                                     answer                      meaning (as torch.distributed.Store's)
    ["hello", job_id, generation, token, t]     ["ok", nil]                 waits up to t seconds, 120 at most, for a generation that is not known yet
    ["set", key, value]                         ["ok", nil]
    ["get", key, t]                             ["ok", value]               waits up to t seconds for the key
    ["add", key, amount]                        ["ok", new int]             a missing key counts as 0; kept as decimal text
    ["check", [key, ...]]                       ["ok", bool]                do all exist
    ["wait", [key, ...], t]                     ["ok", nil]                 waits up to t seconds for all of them
    ["compareset", key, expected, desired]      ["ok", value after it]      a missing key: set if expected is empty, else answers expected
    ["deletekey", key]                          ["ok", existed]
    ["numkeys"]                                 ["ok", int]

    any of them                                 ["timedout", message]       the wait's t seconds are over; the connection stays open
                                                ["invalid", message]        cannot be done; the connection stays open
                                                ["refused", message]        not a member, older generation, generation over; then closed

Keys are text, values bytes; t is 0 to 1e9, and any other number ends the connection. A waiting request blocks its own connection only: clone a store to wait in two
threads. When a newer generation is admitted, every connection of an older one is answered `refused`, waiting requests at once: the generation is a
fencing token. The keys of a generation take 256 MiB at most. A generation that begins at a step boundary leaves the one before it open, until that is retired or another is admitted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import Callable

import msgspec

from paceline.distributed.errors import StoreRefusedError
from paceline.distributed.store_wire import (
    LENGTH,
    MAX_FRAME_BYTES,
    MAX_HELLO_BYTES,
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
    StoreFrameTooLargeError,
    TimedOut,
    Wait,
    check_length,
    decode_request,
    encode,
)

HELLO_TIMEOUT_SECONDS = 10.0
MAX_ADMISSION_SECONDS = 120.0  # how long a client may wait for its generation, whatever timeout it sends
#: Connections that have not proved their membership; further ones are closed at once. Ranks send hello as soon as they are connected.
MAX_UNAUTHENTICATED = 2048
MAX_CONNECTIONS = 16384
#: What a generation may keep here, in the agent's memory: ranks keep addresses and counts in it, a few MiB of a gang of hundreds.
MAX_KEPT_BYTES = 256 << 20
KEY_BYTES = 200  # a key costs so much beside its text and its value


class Namespace:
    """The keys of one generation of one job, and the token of its members."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.values: dict[str, bytes] = {}
        self.kept_bytes = 0
        self.closed: str | None = None  # the reason
        self.changed = asyncio.Condition()

    async def wait_for(self, keys: tuple[str, ...], timeout: float) -> bool:
        """Return True once all keys exist, or False after `timeout` seconds. Raises `StoreRefusedError` if the namespace is closed."""
        try:
            async with asyncio.timeout(timeout), self.changed:
                await self.changed.wait_for(lambda: self.closed is not None or self.has(keys))
        except TimeoutError:
            return False
        self.check_open()
        return True

    def write(self, request: Set | Add | CompareSet | DeleteKey) -> Reply:
        """Carry out a request that may change a value; one by which the keys would take too much is not carried out."""
        freed = self._bytes_of(request.key)
        if self.kept_bytes - freed + _most_bytes_after(request) > MAX_KEPT_BYTES:
            return Invalid(
                f"key {request.key[:100]} does not fit: the keys of this generation take {self.kept_bytes} bytes, and {MAX_KEPT_BYTES} are "
                "the limit; delete keys that are no longer needed, and pass large data through files"
            )
        reply = _WRITES[type(request)](self.values, request)
        self.kept_bytes += self._bytes_of(request.key) - freed
        return reply

    def _bytes_of(self, key: str) -> int:
        value = self.values.get(key)
        return 0 if value is None else _bytes_of(key, value)

    def has(self, keys: tuple[str, ...]) -> bool:
        return all(key in self.values for key in keys)

    def check_open(self) -> None:
        """Raise `StoreRefusedError` if the namespace is closed."""
        if self.closed is not None:
            raise StoreRefusedError(self.closed)

    async def notify(self) -> None:
        """Wake every request that waits for keys of this namespace."""
        async with self.changed:
            self.changed.notify_all()


class StoreServer:
    """Serves the namespaces of generations from `admit` to `retire`."""

    def __init__(self, descriptors: int = 2 * MAX_CONNECTIONS) -> None:
        """Make a server that is not started. `descriptors`: what this process may have, of which connections take half at most."""
        self._descriptors = descriptors
        self._namespaces: dict[str, dict[int, Namespace]] = {}
        self._former: dict[str, dict[int, str]] = {}  # by job, the tokens of generations that are over
        self._unauthenticated = 0
        self._admitted = asyncio.Condition()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int = 0) -> int:
        """Listen on `port`, or on a free port for 0, and return the port."""
        self._server = await asyncio.start_server(self._on_connection, host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def admit(self, job_id: str, generation: int, token: str, *, at_boundary: bool = False) -> None:
        """Open the namespace of a generation, and close those of older generations unless their ranks are to leave them in good order
        (`at_boundary`).

        A generation older than an admitted one is not opened. Harmless the second time.
        """
        generations = self._namespaces.setdefault(job_id, {})
        if any(newer > generation for newer in generations):
            self._former.setdefault(job_id, {})[generation] = token
            return
        if generation not in generations:
            generations[generation] = Namespace(token)
        for older in [g for g in generations if g < generation and not at_boundary]:
            await self._close_namespace(job_id, older, f"job {job_id}: stale generation {older}; the current one is {generation}")
        async with self._admitted:
            self._admitted.notify_all()

    async def retire(self, job_id: str, generation: int) -> None:
        """Close the namespace of a generation that is no longer desired. Harmless the second time."""
        generations = self._namespaces.get(job_id, {})
        if generation in generations:
            await self._close_namespace(job_id, generation, f"job {job_id}: generation {generation} is over")
        if not generations:
            self._namespaces.pop(job_id, None)
            self._former.pop(job_id, None)

    async def _close_namespace(self, job_id: str, generation: int, reason: str) -> None:
        namespace = self._namespaces[job_id].pop(generation)
        self._former.setdefault(job_id, {})[generation] = namespace.token
        namespace.closed = reason
        await namespace.notify()

    async def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        most, unauthenticated = min(MAX_CONNECTIONS, self._descriptors // 2), min(MAX_UNAUTHENTICATED, self._descriptors // 4)
        if self._unauthenticated >= unauthenticated or len(self._connections) >= most:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (
            ConnectionError,
            asyncio.IncompleteReadError,
            msgspec.DecodeError,
            UnicodeDecodeError,
            StoreFrameTooLargeError,
            TimeoutError,
        ):
            pass  # the client left, or does not speak this protocol: only its own connection ends
        except asyncio.CancelledError:
            pass  # the server is closed; Python 3.11 would print it as an error of its own
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            namespace = await self._authenticate(reader)
            await _write(writer, Ok())
            while True:
                await _write(writer, await answer(namespace, await _read_request(reader, MAX_FRAME_BYTES)))
        except StoreRefusedError as refusal:
            await _write(writer, Refused(str(refusal)))

    async def _authenticate(self, reader: asyncio.StreamReader) -> Namespace:
        """Read the client's hello and return its namespace. Until then the client may send little, and few such clients are served at
        once.
        """
        self._unauthenticated += 1
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_SECONDS):
                hello = await _read_request(reader, MAX_HELLO_BYTES)
            if not isinstance(hello, Hello):
                raise StoreRefusedError(f"the first message must be hello, not {type(hello).__name__.lower()}")
            return await self._namespace_of(hello)
        finally:
            self._unauthenticated -= 1

    async def _namespace_of(self, hello: Hello) -> Namespace:
        """Return the namespace of a member, or raise `StoreRefusedError`.

        The refusal is the same for an unknown job and for a wrong token; only a former member is told that its generation is over.
        """
        await self._await_admission(hello)
        generations = self._namespaces.get(hello.job_id, {})
        namespace = generations.get(hello.generation)
        if namespace is not None and _tokens_equal(namespace.token, hello.token):
            return namespace
        former = self._former.get(hello.job_id, {}).get(hello.generation)
        if former is not None and generations and _tokens_equal(former, hello.token):
            raise StoreRefusedError(f"job {hello.job_id}: stale generation {hello.generation}; the current one is {max(generations)}")
        raise StoreRefusedError(
            f"no member of job {hello.job_id} generation {hello.generation}: the store token is wrong, or this store does not serve it"
        )

    async def _await_admission(self, hello: Hello) -> None:
        """Wait until the generation, or a newer one, is admitted: a rank may be faster than the message that announces its generation to
        this agent.
        """

        def known() -> bool:
            return any(generation >= hello.generation for generation in self._namespaces.get(hello.job_id, ()))

        with contextlib.suppress(TimeoutError):  # the caller reports what is missing
            async with asyncio.timeout(min(hello.timeout, MAX_ADMISSION_SECONDS)), self._admitted:
                await self._admitted.wait_for(known)


async def answer(namespace: Namespace, request: Request) -> Reply:
    """Carry out one request and return the reply."""
    namespace.check_open()
    match request:
        case Get() | Wait():
            return await _answer_waiting(namespace, request)
        case Set() | Add() | CompareSet() | DeleteKey():
            reply = namespace.write(request)
            await namespace.notify()
            return reply
        case Check(keys=keys):
            return Ok(namespace.has(keys))
        case NumKeys():
            return Ok(len(namespace.values))
        case Hello():
            return Invalid("hello was sent already on this connection")


async def _answer_waiting(namespace: Namespace, request: Get | Wait) -> Reply:
    keys = (request.key,) if isinstance(request, Get) else request.keys
    if not await namespace.wait_for(keys, request.timeout):
        missing = ", ".join(key for key in keys if key not in namespace.values)
        return TimedOut(f"no key {missing} after {request.timeout:g} s")
    return Ok(namespace.values[request.key] if isinstance(request, Get) else None)


def _bytes_of(key: str, value: bytes) -> int:
    return KEY_BYTES + len(key) + len(value)


def _most_bytes_after(request: Set | Add | CompareSet | DeleteKey) -> int:
    """The most that the key of a request takes once it is carried out."""
    match request:
        case Set(key=key, value=value) | CompareSet(key=key, desired=value):
            return _bytes_of(key, value)
        case Add(key=key):
            return _bytes_of(key, bytes(20))
        case DeleteKey():
            return 0


def _set(values: dict[str, bytes], request: Set) -> Reply:
    values[request.key] = request.value
    return Ok()


def _add(values: dict[str, bytes], request: Add) -> Reply:
    current = values.get(request.key, b"0")
    try:
        total = int(current) + request.amount
    except ValueError:
        return Invalid(f"add on key {request.key}, whose value of {len(current)} bytes is not a number")
    values[request.key] = str(total).encode()
    return Ok(total)


def _compare_set(values: dict[str, bytes], request: CompareSet) -> Reply:
    current = values.get(request.key)
    if current is None and request.expected:
        return Ok(request.expected)
    if current in (None, request.expected):
        values[request.key] = request.desired
    return Ok(values[request.key])


def _delete_key(values: dict[str, bytes], request: DeleteKey) -> Reply:
    return Ok(values.pop(request.key, None) is not None)


_WRITES: dict[type, Callable[..., Reply]] = {Set: _set, Add: _add, CompareSet: _compare_set, DeleteKey: _delete_key}


async def _read_request(reader: asyncio.StreamReader, limit: int) -> Request:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    return decode_request(await reader.readexactly(check_length(length, limit)))


def _tokens_equal(token: str, sent: str) -> bool:
    return hmac.compare_digest(token.encode(), sent.encode())


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    writer.write(encode(reply))
    await writer.drain()
