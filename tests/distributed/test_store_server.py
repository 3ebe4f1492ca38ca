"""The rendezvous store over real sockets: torch's semantics, and the fencing of generations."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from paceline.distributed import store_server
from paceline.distributed.store_server import StoreServer
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
    TimedOut,
    Wait,
    decode_reply,
    encode,
)
from tests.waiting import until

TIMEOUT_SECONDS = 10.0
NO_MEMBER = "no member of job job generation {generation}: the store token is wrong, or this store does not serve it"


async def until_somebody_waits(condition: asyncio.Condition) -> None:
    """The server has read the request, which it does not report to its client."""
    await until(lambda: condition._waiters, "a wait in the store", seconds=TIMEOUT_SECONDS)


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, request: Request) -> Reply:
        self.writer.write(encode(request))
        return await self.reply()

    async def reply(self) -> Reply:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            (length,) = LENGTH.unpack(await self.reader.readexactly(LENGTH.size))
            return decode_reply(await self.reader.readexactly(length))

    async def ended(self) -> bool:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.reader.read() == b""


Connect = Callable[[], Awaitable[Client]]


@pytest.fixture
async def server() -> AsyncIterator[StoreServer]:
    server = StoreServer()
    yield server
    await server.close()


@pytest.fixture
async def connect(server: StoreServer) -> AsyncIterator[Connect]:
    port = await server.start("127.0.0.1")
    clients: list[Client] = []

    async def connect() -> Client:
        clients.append(Client(*await asyncio.open_connection("127.0.0.1", port)))
        return clients[-1]

    yield connect
    for client in clients:
        client.writer.close()


async def member(server: StoreServer, connect: Connect, generation: int = 1) -> Client:
    await server.admit("job", generation, "secret")
    client = await connect()
    assert await client.ask(Hello("job", generation, "secret", 1.0)) == Ok()
    return client


async def test_closing_it_while_ranks_are_connected_is_no_error(
    server: StoreServer, connect: Connect, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """An agent that left while ranks elsewhere were connected had a traceback in its log for each."""
    waiting = await member(server, connect)
    await server.close()
    assert await waiting.ended()
    assert (caplog.text, capsys.readouterr().err) == ("", "")


async def test_keys(server: StoreServer, connect: Connect) -> None:
    client = await member(server, connect)
    assert await client.ask(Check(("a",))) == Ok(False)
    assert await client.ask(Set("a", b"\x00value")) == Ok()
    assert await client.ask(Get("a", 1.0)) == Ok(b"\x00value")
    assert await client.ask(Check(("a", "b"))) == Ok(False)
    assert await client.ask(NumKeys()) == Ok(1)
    assert await client.ask(DeleteKey("a")) == Ok(True)
    assert await client.ask(DeleteKey("a")) == Ok(False)


async def test_add_counts_from_zero_and_reads_as_text(server: StoreServer, connect: Connect) -> None:
    client = await member(server, connect)
    assert await client.ask(Add("n", 3)) == Ok(3)
    assert await client.ask(Add("n", -1)) == Ok(2)
    assert await client.ask(Get("n", 1.0)) == Ok(b"2")
    await client.ask(Set("word", b"word"))
    assert isinstance(await client.ask(Add("word", 1)), Invalid)
    assert await client.ask(Get("n", 1.0)) == Ok(b"2")  # the connection stays open


async def test_compare_set(server: StoreServer, connect: Connect) -> None:
    client = await member(server, connect)
    assert await client.ask(CompareSet("k", b"x", b"1")) == Ok(b"x")
    assert await client.ask(Check(("k",))) == Ok(False)
    assert await client.ask(CompareSet("k", b"", b"1")) == Ok(b"1")
    assert await client.ask(CompareSet("k", b"1", b"2")) == Ok(b"2")
    assert await client.ask(CompareSet("k", b"1", b"3")) == Ok(b"2")


async def test_get_and_wait_block_until_another_rank_sets(server: StoreServer, connect: Connect) -> None:
    first, second, third = await member(server, connect), await member(server, connect), await member(server, connect)
    getting, waiting = asyncio.create_task(first.ask(Get("k", 5.0))), asyncio.create_task(second.ask(Wait(("k", "l"), 5.0)))
    await third.ask(Set("k", b"v"))
    assert await getting == Ok(b"v")
    assert not waiting.done()
    await third.ask(Set("l", b""))
    assert await waiting == Ok()


async def test_a_wait_names_what_did_not_come(server: StoreServer, connect: Connect) -> None:
    client = await member(server, connect)
    await client.ask(Set("here", b""))
    reply = await client.ask(Wait(("here", "missing"), 0.01))
    assert reply == TimedOut("no key missing after 0.01 s")
    assert await client.ask(NumKeys()) == Ok(1)


async def test_generations_do_not_see_each_others_keys(server: StoreServer, connect: Connect) -> None:
    client = await member(server, connect, 1)
    await client.ask(Set("k", b"old"))
    assert await (await member(server, connect, 2)).ask(NumKeys()) == Ok(0)


async def test_a_newer_generation_fences_off_the_older_even_where_it_waits(server: StoreServer, connect: Connect) -> None:
    old = await member(server, connect, 3)
    waiting = asyncio.create_task(old.ask(Get("never", 60.0)))
    await until_somebody_waits(server._namespaces["job"][3].changed)
    await server.admit("job", 4, "newer")
    assert await waiting == Refused("job job: stale generation 3; the current one is 4")
    assert await old.ended()
    late = await connect()
    assert await late.ask(Hello("job", 3, "secret", 0.1)) == Refused("job job: stale generation 3; the current one is 4")
    assert await late.ended()


async def test_a_stale_generation_cannot_come_back(server: StoreServer, connect: Connect) -> None:
    await member(server, connect, 4)
    await server.admit("job", 3, "secret")
    late = await connect()
    assert await late.ask(Hello("job", 3, "secret", 0.1)) == Refused("job job: stale generation 3; the current one is 4")


async def test_a_generation_that_is_left_in_good_order_stays_open_until_a_fault(server: StoreServer, connect: Connect) -> None:
    client = await member(server, connect, 3)
    await server.admit("job", 4, "newer", at_boundary=True)
    assert await client.ask(NumKeys()) == Ok(0)
    newer = await connect()
    assert await newer.ask(Hello("job", 4, "newer", 0.1)) == Ok()
    await server.admit("job", 5, "newest")
    assert await client.ask(NumKeys()) == Refused("job job: stale generation 3; the current one is 5")
    assert await newer.ask(NumKeys()) == Refused("job job: stale generation 4; the current one is 5")


async def test_a_retired_generation_is_over(server: StoreServer, connect: Connect) -> None:
    client = await member(server, connect)
    await server.retire("job", 1)
    await server.retire("job", 1)
    assert await client.ask(NumKeys()) == Refused("job job: generation 1 is over")


async def test_the_token_is_checked(server: StoreServer, connect: Connect) -> None:
    await member(server, connect)
    stranger = await connect()
    assert await stranger.ask(Hello("job", 1, "guess", 0.1)) == Refused(NO_MEMBER.format(generation=1))


async def test_a_rank_may_be_quicker_than_the_news_of_its_generation(server: StoreServer, connect: Connect) -> None:
    client = await connect()
    hello = asyncio.create_task(client.ask(Hello("job", 7, "secret", 5.0)))
    await until_somebody_waits(server._admitted)
    await server.admit("job", 7, "secret")
    assert await hello == Ok()


async def test_a_generation_that_never_comes_is_refused(server: StoreServer, connect: Connect) -> None:
    client = await connect()
    assert await client.ask(Hello("job", 7, "secret", 0.01)) == Refused(NO_MEMBER.format(generation=7))


@pytest.mark.parametrize(
    "sent", [LENGTH.pack(MAX_FRAME_BYTES + 1), LENGTH.pack(3) + b"\xc1\xc1\xc1", encode(Hello("job", 1, "secret", 0.1))[:5]]
)
async def test_nonsense_ends_its_own_connection_only(server: StoreServer, connect: Connect, sent: bytes) -> None:
    good, bad = await member(server, connect), await connect()
    bad.writer.write(sent)
    bad.writer.write_eof()
    assert await bad.ended()
    assert await good.ask(NumKeys()) == Ok(0)


async def test_the_first_word_must_be_hello(connect: Connect) -> None:
    client = await connect()
    assert await client.ask(NumKeys()) == Refused("the first message must be hello, not numkeys")


async def test_a_stranger_cannot_make_the_agent_hold_megabytes(server: StoreServer, connect: Connect) -> None:
    """A hello may have 4 KiB; a member's frames may have 16 MiB."""
    stranger = await connect()
    stranger.writer.write(LENGTH.pack(MAX_HELLO_BYTES + 1))
    assert await stranger.ended()
    large = bytes(MAX_HELLO_BYTES * 4)
    client = await member(server, connect)
    assert await client.ask(Set("large", large)) == Ok()
    assert await client.ask(Get("large", 1.0)) == Ok(large)


async def test_a_strangers_own_time_out_does_not_keep_it_here_for_ever(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "MAX_ADMISSION_SECONDS", 0.05)
    stranger = await connect()
    assert await stranger.ask(Hello("job", 1, "guess", 1e9)) == Refused(NO_MEMBER.format(generation=1))


@pytest.mark.parametrize("timeout", [math.nan, math.inf, -1.0])
async def test_a_timeout_that_is_no_time_ends_its_connection_and_reaches_no_timer(
    server: StoreServer, connect: Connect, timeout: float
) -> None:
    """NaN in the heap of the agent's timers had all of them run late: heartbeats paused for half a minute."""
    stranger = await connect()
    stranger.writer.write(encode(Hello("job", 1, "guess", timeout)))
    assert await stranger.ended()
    for request in (Get("key", timeout), Wait(("key",), timeout)):
        client = await member(server, connect)
        client.writer.write(encode(request))
        assert await client.ended()


async def test_the_keys_of_a_generation_take_no_more_than_their_share_of_the_agents_memory(
    server: StoreServer, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that set large values in a loop grew the agent, which the kernel spares, until other jobs' ranks were ended for it."""
    monkeypatch.setattr(store_server, "MAX_KEPT_BYTES", 3 * 1500)
    client = await member(server, connect)
    value = bytes(1000)
    for _ in range(9):  # again: the former value is freed
        assert await client.ask(Set("first", value)) == Ok()
    assert await client.ask(CompareSet("second", b"", value)) == Ok(value)
    assert await client.ask(Add("count", 1)) == Ok(1)
    for large in (Set("third", bytes(3000)), CompareSet("third", b"", bytes(3000)), Set("k" * 3000, b"")):
        answer = await client.ask(large)
        assert isinstance(answer, Invalid)
        assert "4500 are the limit; delete keys that are no longer needed" in answer.message
    for number in range(50):  # keys cost something themselves
        answer = await client.ask(Add(f"key{number}", 1))
    assert isinstance(answer, Invalid)
    assert await client.ask(DeleteKey("second")) == Ok(True)
    assert await client.ask(Add("another", 1)) == Ok(1)
    assert await client.ask(Get("first", 1.0)) == Ok(value)


async def test_many_strangers_leave_room_for_members(server: StoreServer, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "MAX_UNAUTHENTICATED", 3)
    client = await member(server, connect)
    silent = [await connect() for _ in range(3)]
    await until(lambda: server._unauthenticated == 3, "three strangers", seconds=TIMEOUT_SECONDS)
    turned_away = await connect()
    with contextlib.suppress(ConnectionResetError):
        assert await turned_away.ended()
    assert await client.ask(NumKeys()) == Ok(0)
    silent[0].writer.close()
    await until(lambda: server._unauthenticated == 2, "one to leave", seconds=TIMEOUT_SECONDS)
    await member(server, connect)


async def test_a_stranger_that_says_nothing_is_hung_up_on(server: StoreServer, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await member(server, connect)
    monkeypatch.setattr(store_server, "HELLO_TIMEOUT_SECONDS", 0.05)
    assert await (await connect()).ended()
    assert await client.ask(NumKeys()) == Ok(0), "a member may be silent"


async def test_connections_are_bounded_in_all(server: StoreServer, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_server, "MAX_CONNECTIONS", 1)
    client, turned_away = await member(server, connect), await connect()
    turned_away.writer.write(encode(Hello("job", 1, "secret", 1.0)))
    with contextlib.suppress(ConnectionResetError):
        assert await turned_away.ended()
    assert await client.ask(NumKeys()) == Ok(0)
    client.writer.close()
    await until(lambda: not server._connections, "the member to leave", seconds=TIMEOUT_SECONDS)
    await member(server, connect)


async def test_its_connections_leave_descriptors_for_the_rest_of_the_process() -> None:
    """An agent with the limit of a shell, 1,024, accepted more than it could have."""
    server = StoreServer(descriptors=8)
    port = await server.start("127.0.0.1")
    clients = [Client(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(5)]
    with contextlib.suppress(ConnectionError):
        assert await clients[-1].ended()
    await server.admit("job", 1, "secret")
    for client in clients[:2]:
        assert await client.ask(Hello("job", 1, "secret", 1.0)) == Ok()
    for client in clients:
        client.writer.close()
    await server.close()
