"""The messages between workers and servers: a header of whole numbers, then a payload of bytes. No torch.

kind     from     to         payload                                         round
PUSH     worker   server     the sums of gradients of one subtree, of its shard   0 .. the worker's subtrees - 1
NORMS    server   everyone   the norms of the shard's summed gradients       0
PULL     anyone   server     none: asks for the parameters that `step` begins with    0
VALUES   server   who pulled the shard's parameters and running statistics   0
"""

from __future__ import annotations

import enum
import zlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass

from paceline.distributed.parameter_server.errors import WrongShardError
from paceline.distributed.protocol_errors import (
    ChecksumError,
    LateMessageError,
    ProtocolError,
    UnknownRankError,
    WrongKindError,
    WrongRoundError,
    WrongSizeError,
    WrongStepError,
)


class MessageKind(enum.IntEnum):
    """The kinds of messages."""

    PUSH = 1
    NORMS = 2
    PULL = 3
    VALUES = 4


@dataclass(frozen=True)
class Header:
    """The part of a message that describes it. Steps are numbered from 1, ranks and rounds from 0; a shard is the number of its server."""

    kind: MessageKind
    step: int
    rank: int  # of the sender
    round: int
    shard: int
    length: int  # bytes of the payload
    checksum: int  # CRC-32 of the payload

    def numbers(self) -> list[int]:
        """Return the header as it is sent."""
        return [MAGIC, *map(int, astuple(self))]

    def __str__(self) -> str:
        return f"{self.kind.name} of step {self.step}, shard {self.shard}, round {self.round} from rank {self.rank}"


#: The first number of every header: a message of this protocol, version 1.
MAGIC = 0x50_53_00_01
#: The numbers of a header.
HEADER_NUMBERS = 8


def read_header(numbers: Sequence[int]) -> Header:
    """Return the header that `numbers` are. Raises `ProtocolError` if they are none."""
    if len(numbers) != HEADER_NUMBERS or numbers[0] != MAGIC:
        raise ProtocolError(f"{list(numbers)[:HEADER_NUMBERS]} is no header: expected {HEADER_NUMBERS} numbers, the first {MAGIC:#x}")
    kind, *rest = numbers[1:]
    if kind not in MessageKind.__members__.values():
        raise WrongKindError(
            f"there is no message of kind {kind}; expected one of {', '.join(f'{each.value} ({each.name})' for each in MessageKind)}"
        )
    return Header(MessageKind(kind), *rest)


def checksum_of(payload: bytes | memoryview) -> int:
    """Return the CRC-32 of a payload."""
    return zlib.crc32(payload)


def verify(header: Header, payload: bytes | memoryview) -> None:
    """Raise `ChecksumError` if `payload` is not what `header` was made for."""
    if (found := checksum_of(payload)) != header.checksum:
        raise ChecksumError(f"{header}: the payload's checksum is {found:#010x}, the sender had {header.checksum:#010x}")


def require(header: Header, expected: Header) -> None:
    """Raise a named error if `header` differs from `expected` in anything but its checksum."""
    if header.rank != expected.rank:
        raise UnknownRankError(f"{header}: expected a message from rank {expected.rank}")
    if header.kind is not expected.kind:
        raise WrongKindError(f"{header}: expected {expected.kind.name}")
    require_step(header, expected.step)
    if header.shard != expected.shard:
        raise WrongShardError(f"{header}: expected shard {expected.shard}")
    if header.round != expected.round:
        raise WrongRoundError(f"{header}: expected round {expected.round}")
    require_length(header, expected.length)


def require_step(header: Header, step: int) -> None:
    """Raise `LateMessageError` or `WrongStepError` if `header` is not of `step`."""
    if header.step < step:
        raise LateMessageError(f"{header}: step {header.step} is closed, and step {step} is under way")
    if header.step > step:
        raise WrongStepError(f"{header}: expected step {step}")


def require_length(header: Header, length: int) -> None:
    """Raise `WrongSizeError` if the payload has not `length` bytes."""
    if header.length != length:
        raise WrongSizeError(f"{header}: the payload has {header.length} bytes, expected {length}")
