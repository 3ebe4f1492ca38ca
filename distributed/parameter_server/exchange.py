"""The messages of the protocol over a generation's group: real transfers, which `GroupAborter.abort` ends.

Headers and payloads travel as tensors on the host. A receiver checks a header before it makes room for the payload, and the checksum
before it uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from paceline.distributed.parameter_server.messages import HEADER_NUMBERS, Header, MessageKind, checksum_of, read_header, verify
from paceline.distributed.process_group import Group

#: Under which axis the messages are counted: as DDP's gradients, which they replace.
TRAFFIC_AXIS = "replicate"


class Outgoing(NamedTuple):
    """A message to send. `payload`: bytes on the host, or None."""

    target: int
    header: Header
    payload: Tensor | None = None


def message(target: int, kind: MessageKind, step: int, rank: int, round_: int, shard: int, payload: Tensor | None = None) -> Outgoing:
    """Return a message with its length and checksum. `payload`: uint8, contiguous, on the host."""
    content = payload.numpy().data if payload is not None else b""
    return Outgoing(target, Header(kind, step, rank, round_, shard, len(content), checksum_of(content)), payload)


#: Checks a header, given the rank that it came from, and returns the buffer (uint8, of its length) for its payload, or None for no payload.
Accept = Callable[[int, Header], Tensor | None]


def exchange(group: Group, outgoing: Sequence[Outgoing], sources: Sequence[int], accept: Accept) -> list[Header]:
    """Send all of `outgoing`, and receive one message for each rank in `sources`, which names a rank once for each message of it.

    Returns the headers, in the order of `sources`, once every payload is in the buffer that `accept` gave for it and has the right
    checksum. Raises `ProtocolError`, what `accept` raises, and what the group's transfers raise.
    """
    tags = _Tags()
    sends = group.start_transfer([operation for each in outgoing for operation in _sends(each, tags)], along=TRAFFIC_AXIS)
    incoming = [(source, torch.empty(HEADER_NUMBERS, dtype=torch.int64), tags.received(source)) for source in sources]
    group.end_transfers([group.start_transfer([dist.P2POp(dist.irecv, numbers, source, tag=tag) for source, numbers, tag in incoming])])
    headers, buffers, receives = [], [], []
    for source, numbers, tag in incoming:
        header = read_header(numbers.tolist())
        buffer = accept(source, header)
        headers.append(header)
        buffers.append(buffer)
        if buffer is not None and buffer.numel():
            receives.append(dist.P2POp(dist.irecv, buffer, source, tag=tag + 1))
    group.end_transfers([sends, group.start_transfer(receives)])
    for header, buffer in zip(headers, buffers, strict=True):
        verify(header, buffer.numpy().data if buffer is not None else b"")
    return headers


def _sends(each: Outgoing, tags: _Tags) -> list[Any]:
    """Return the operations that send a message: its header, and its payload unless it is empty."""
    tag = tags.sent(each.target)
    operations = [dist.P2POp(dist.isend, torch.tensor(each.header.numbers()), each.target, tag=tag)]
    if each.payload is not None and each.payload.numel():
        operations.append(dist.P2POp(dist.isend, each.payload, each.target, tag=tag + 1))
    return operations


class _Tags:
    """Numbers the messages between two ranks within one exchange, alike on both: header and payload have a tag each."""

    def __init__(self) -> None:
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}

    def sent(self, target: int) -> int:
        self._sent[target] = self._sent.get(target, -2) + 2
        return self._sent[target]

    def received(self, source: int) -> int:
        self._received[source] = self._received.get(source, -2) + 2
        return self._received[source]
