"""Headers say what they are, and every field that is wrong is an error of its own name."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paceline.distributed import protocol_errors as errors
from paceline.distributed.collectives.messages import MAGIC, RingHeader, RingPhase, read_header, require

DUE = RingHeader(3, step=7, call=2, phase=RingPhase.REDUCE_SCATTER, round=1, source=4, chunk=5, element=0, length=64)
NUMBERS = some.integers(0, 2**62)


@given(some.builds(RingHeader, NUMBERS, NUMBERS, NUMBERS, some.sampled_from(RingPhase), NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS))
def test_a_header_is_read_as_it_was_sent(header: RingHeader) -> None:
    assert read_header(header.numbers()) == header


@pytest.mark.parametrize("numbers", [[], [MAGIC], [MAGIC + 1, *DUE.numbers()[1:]], [*DUE.numbers(), 0]])
def test_other_numbers_are_no_header(numbers: list[int]) -> None:
    with pytest.raises(errors.ProtocolError, match="is no header"):
        read_header(numbers)


def test_a_phase_that_does_not_exist_is_named_with_those_that_do() -> None:
    numbers = DUE.numbers()
    numbers[4] = 9
    with pytest.raises(errors.WrongKindError, match=r"no phase 9; expected one of 1 \(AGREE\), 2 \(REDUCE_SCATTER\)"):
        read_header(numbers)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"source": 5}, errors.UnknownRankError, "from rank 5: expected a message from rank 4"),
        ({"generation": 2}, errors.WrongGenerationError, "expected generation 3"),
        ({"step": 6}, errors.LateMessageError, "call 2 in step 7 is under way"),
        ({"call": 1}, errors.LateMessageError, "call 2 in step 7 is under way"),
        ({"step": 8, "call": 0}, errors.WrongStepError, "expected call 2 in step 7"),
        ({"call": 3}, errors.WrongStepError, "expected call 2 in step 7"),
        ({"element": 4}, errors.WrongKindError, "data type 4, expected 0"),
        ({"chunk": 4}, errors.DuplicateError, "REDUCE_SCATTER round 1, chunk 5 is due"),
        ({"round": 0, "chunk": 9}, errors.DuplicateError, "it has arrived already"),
        ({"chunk": 6}, errors.WrongRoundError, "expected REDUCE_SCATTER round 1, chunk 5"),
        ({"round": 2, "chunk": 0}, errors.WrongRoundError, "expected REDUCE_SCATTER round 1, chunk 5"),
        ({"phase": RingPhase.ALL_GATHER, "round": 0}, errors.WrongRoundError, "expected REDUCE_SCATTER round 1, chunk 5"),
        ({"phase": RingPhase.AGREE}, errors.DuplicateError, "it has arrived already"),
        ({"length": 65}, errors.WrongSizeError, "the payload has 65 bytes, expected 64"),
    ],
)
def test_what_differs_is_named(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        require(DUE._replace(**change), DUE)


def test_vectors_that_are_not_alike_are_told_before_anything_is_sent() -> None:
    due = DUE._replace(phase=RingPhase.AGREE, round=0, chunk=3)
    with pytest.raises(errors.WrongSizeError, match="the whole vector has 128 bytes, expected 64"):
        require(due._replace(length=128), due)
    with pytest.raises(errors.WrongSizeError, match="into 4 chunks, expected 3"):
        require(due._replace(chunk=4), due)
