"""Headers say what they are, and every field that is wrong is an error of its own name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paceline.distributed import protocol_errors as errors
from paceline.distributed.parameter_server.errors import WrongShardError
from paceline.distributed.parameter_server.messages import MAGIC, Header, MessageKind, checksum_of, read_header, require, verify

HEADER = Header(MessageKind.PUSH, step=7, rank=3, round=1, shard=2, length=64, checksum=5)
NUMBERS = some.integers(0, 2**62)


@given(some.builds(Header, some.sampled_from(MessageKind), NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS))
def test_a_header_is_read_as_it_was_sent(header: Header) -> None:
    assert read_header(header.numbers()) == header


@pytest.mark.parametrize("numbers", [[], [MAGIC], [MAGIC + 1, *HEADER.numbers()[1:]], [*HEADER.numbers(), 0]])
def test_other_numbers_are_no_header(numbers: list[int]) -> None:
    with pytest.raises(errors.ProtocolError, match="is no header"):
        read_header(numbers)


def test_a_kind_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(errors.WrongKindError, match=r"no message of kind 9; expected one of 1 \(PUSH\)"):
        read_header([MAGIC, 9, *HEADER.numbers()[2:]])


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"rank": 4}, errors.UnknownRankError, "from rank 4: expected a message from rank 3"),
        ({"kind": MessageKind.PULL}, errors.WrongKindError, "expected PUSH"),
        ({"step": 6}, errors.LateMessageError, "step 6 is closed, and step 7 is under way"),
        ({"step": 8}, errors.WrongStepError, "expected step 7"),
        ({"shard": 0}, WrongShardError, "expected shard 2"),
        ({"round": 0}, errors.WrongRoundError, "expected round 1"),
        ({"length": 63}, errors.WrongSizeError, "63 bytes, expected 64"),
    ],
)
def test_each_wrong_field_has_its_error(change: dict[str, Any], error: type[Exception], words: str) -> None:
    require(replace(HEADER, checksum=9), HEADER)  # a checksum is of the payload
    with pytest.raises(error, match=words):
        require(replace(HEADER, **change), HEADER)


@given(some.binary(min_size=1, max_size=200), some.data())
def test_any_changed_bit_of_a_payload_is_found(payload: bytes, data: some.DataObject) -> None:
    header = replace(HEADER, length=len(payload), checksum=checksum_of(payload))
    verify(header, payload)
    place, bit = data.draw(some.integers(0, len(payload) - 1)), data.draw(some.integers(0, 7))
    damaged = bytearray(payload)
    damaged[place] ^= 1 << bit
    with pytest.raises(errors.ChecksumError, match="PUSH of step 7, shard 2, round 1 from rank 3: the payload's checksum is 0x"):
        verify(header, bytes(damaged))
