"""Messages between real ranks: they arrive whole and in order, and a header or a payload that is wrong is a named error."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from paceline.distributed import protocol_errors as errors
from paceline.distributed.abort import GroupAborter
from paceline.distributed.joining import join
from paceline.distributed.parameter_server.exchange import Outgoing, exchange, message
from paceline.distributed.parameter_server.messages import Header, MessageKind, require
from paceline.training.link import RankPlace
from tests.ranks import run_ranks

ROUNDS = 3


def payload(rank: int, number: int) -> Tensor:
    """As long as its sender and round say; the first is empty."""
    return torch.arange(5 * number + rank * bool(number), dtype=torch.uint8)


def all_to_all(world: RankPlace) -> list[tuple[int, int, list[int]]]:
    """Every rank sends every other one `ROUNDS` messages of different lengths. Returns (sender, round, payload) as received."""
    group = join(world, GroupAborter())
    peers = [rank for rank in range(world.world_size) if rank != world.rank]
    sends = [
        message(peer, MessageKind.PUSH, 1, world.rank, number, peer, payload(world.rank, number))
        for peer in peers
        for number in range(ROUNDS)
    ]
    buffers: list[Tensor] = []

    def accept(source: int, header: Header) -> Tensor:
        assert header.rank == source
        buffers.append(torch.empty(header.length, dtype=torch.uint8))
        return buffers[-1]

    headers = exchange(group, sends, [peer for peer in peers for _ in range(ROUNDS)], accept)
    group.barrier_and_leave()
    return [(header.rank, header.round, buffer.tolist()) for header, buffer in zip(headers, buffers, strict=True)]


@pytest.mark.parametrize("ranks", [2, 3])
def test_messages_of_any_length_arrive_in_the_order_in_which_they_were_sent(ranks: int) -> None:
    for rank, received in enumerate(run_ranks(all_to_all, ranks)):
        peers = [peer for peer in range(ranks) if peer != rank]
        assert received == [(peer, number, payload(peer, number).tolist()) for peer in peers for number in range(ROUNDS)]


def spoiled(world: RankPlace, kind: str) -> str:
    """Rank 1 sends rank 0 a message that is wrong. Returns the name of the error that a rank has met, or nothing."""
    group = join(world, GroupAborter())
    buffer = torch.zeros(8, dtype=torch.uint8)
    if world.rank == 1:
        good = message(0, MessageKind.PUSH, 2, 1, 0, 0, torch.ones(8, dtype=torch.uint8))
        damaged = torch.ones(8, dtype=torch.uint8)
        damaged[3] = 5
        step = Header(MessageKind.PUSH, 3, 1, 0, 0, 8, good.header.checksum)
        sent = {"damaged": Outgoing(0, good.header, damaged), "another step": Outgoing(0, step)}[kind]
        exchange(group, [sent], [], lambda _, header: None)
        return ""
    try:

        def accept(source: int, header: Header) -> Tensor:
            require(header, Header(MessageKind.PUSH, 2, source, 0, 0, 8, 0))
            return buffer

        exchange(group, [], [1], accept)
    except errors.ProtocolError as error:
        return type(error).__name__
    return ""


@pytest.mark.parametrize(("kind", "error"), [("damaged", "ChecksumError"), ("another step", "WrongStepError")])
def test_what_is_damaged_or_does_not_belong_is_refused_by_name(kind: str, error: str) -> None:
    assert run_ranks(spoiled, 2, kind)[0] == error
