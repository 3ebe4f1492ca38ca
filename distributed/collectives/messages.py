"""The messages of ring collectives: a header of whole numbers, then a payload of bytes. No torch.

Every rank knows which message comes next from the rank before it in the ring; any other one is an error that says what was expected.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from paceline.distributed.protocol_errors import (
    DuplicateError,
    LateMessageError,
    ProtocolError,
    UnknownRankError,
    WrongGenerationError,
    WrongKindError,
    WrongRoundError,
    WrongSizeError,
    WrongStepError,
)


class RingPhase(enum.IntEnum):
    """The phases of a collective, in order."""

    AGREE = 1  # without a payload: `length` is that of the whole vector in bytes, `chunk` the number of chunks
    REDUCE_SCATTER = 2
    ALL_GATHER = 3


class RingHeader(NamedTuple):
    """The part of a message that describes it. Steps are numbered from 1; calls, rounds and chunks from 0."""

    generation: int
    step: int
    call: int  # of the collectives that this ring has carried out
    phase: RingPhase
    round: int
    source: int  # rank of the sender
    chunk: int  # of the segment that the round sends
    element: int  # number of the data type
    length: int  # bytes of the payload

    def numbers(self) -> list[int]:
        """Return the header as it is sent."""
        return [MAGIC, *map(int, self)]

    def __str__(self) -> str:
        return (
            f"{self.phase.name} round {self.round}, chunk {self.chunk} of call {self.call} in step {self.step}, "
            f"generation {self.generation}, from rank {self.source}"
        )


class RingMessage(NamedTuple):
    """A header and its payload, which is empty where `header.length` is 0 or the phase is AGREE."""

    header: RingHeader
    payload: memoryview


#: The first number of every header: a message of this protocol, version 1.
MAGIC = 0x52_49_00_01
#: The numbers of a header.
HEADER_NUMBERS = 10


def read_header(numbers: Sequence[int]) -> RingHeader:
    """Return the header that `numbers` are. Raises `ProtocolError` if they are none."""
    if len(numbers) != HEADER_NUMBERS or numbers[0] != MAGIC:
        raise ProtocolError(f"{list(numbers)[:HEADER_NUMBERS]} is no header: expected {HEADER_NUMBERS} numbers, the first {MAGIC:#x}")
    generation, step, call, phase, *rest = numbers[1:]
    if phase not in RingPhase.__members__.values():
        known = ", ".join(f"{each.value} ({each.name})" for each in RingPhase)
        raise WrongKindError(f"there is no phase {phase}; expected one of {known}")
    return RingHeader(generation, step, call, RingPhase(phase), *rest)


def require(header: RingHeader, expected: RingHeader) -> None:
    """Raise the error that is named for it if `header` differs from `expected` in anything."""
    if header == expected:
        return
    if header.source != expected.source:
        raise UnknownRankError(f"{header}: expected a message from rank {expected.source}")
    if header.generation != expected.generation:
        raise WrongGenerationError(f"{header}: expected generation {expected.generation}")
    if (header.step, header.call) < (expected.step, expected.call):
        raise LateMessageError(f"{header}: that is closed, and call {expected.call} in step {expected.step} is under way")
    if (header.step, header.call) > (expected.step, expected.call):
        raise WrongStepError(f"{header}: expected call {expected.call} in step {expected.step}")
    if header.element != expected.element:
        raise WrongKindError(f"{header}: its elements are of data type {header.element}, expected {expected.element}")
    _require_turn(header, expected)
    if header.length != expected.length:
        words = "the whole vector" if header.phase is RingPhase.AGREE else "the payload"
        raise WrongSizeError(f"{header}: {words} has {header.length} bytes, expected {expected.length}")


def _require_turn(header: RingHeader, expected: RingHeader) -> None:
    turn, due = ((each.phase, each.round, each.chunk) for each in (header, expected))
    if turn[0] is due[0] is RingPhase.AGREE and turn != due:
        raise WrongSizeError(f"{header}: it divides a segment into {header.chunk} chunks, expected {expected.chunk}")
    if turn < due:
        raise DuplicateError(f"{header}: it has arrived already, and {due[0].name} round {due[1]}, chunk {due[2]} is due")
    if turn > due:
        raise WrongRoundError(f"{header}: expected {due[0].name} round {due[1]}, chunk {due[2]}")
