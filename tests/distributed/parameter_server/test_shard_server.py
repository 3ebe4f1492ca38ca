"""A server's state machine: any order of right messages gives one result, and no wrong one goes through. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from paceline.distributed import protocol_errors as errors
from paceline.distributed.parameter_server.errors import EarlyPullError, IncompleteStepError, WrongShardError
from paceline.distributed.parameter_server.messages import Header, MessageKind
from paceline.distributed.parameter_server.shard_server import ShardServer

SHARD, LENGTH, VERSION = 1, 24, 4
STEP = VERSION + 1
READERS = (0, 2, 3, 4, 5)
ROUNDS = {2: 2, 3: 1, 4: 3}
#: (rank, round) of all pushes of a step.
ALL = [(rank, number) for rank, total in ROUNDS.items() for number in range(total)]


def push(rank: int, number: int, step: int = STEP) -> Header:
    return Header(MessageKind.PUSH, step, rank, number, SHARD, LENGTH, 0)


def pull(rank: int, step: int = STEP) -> Header:
    return Header(MessageKind.PULL, step, rank, 0, SHARD, 0, 0)


def opened() -> ShardServer[str]:
    server: ShardServer[str] = ShardServer(SHARD, VERSION, READERS)
    server.open(ROUNDS, LENGTH)
    return server


def give(server: ShardServer[str], header: Header) -> None:
    server.accept_push(header)
    server.put(header, f"{header.rank}.{header.round}")


def in_rounds(order: list[int]) -> list[tuple[int, int]]:
    """The pushes of workers that send in this order: each its rounds from 0."""
    sent = dict.fromkeys(ROUNDS, 0)
    found = []
    for rank in order:
        found.append((rank, sent[rank]))
        sent[rank] += 1
    return found


#: Any order in which the workers' messages may come.
ORDERS = some.permutations([rank for rank, _ in ALL]).map(in_rounds)


@given(ORDERS, some.permutations(READERS))
def test_any_interleaving_gives_the_same_pushes_in_the_order_of_ranks_and_rounds(order: list[tuple[int, int]], readers: list[int]) -> None:
    server = opened()
    for number, (rank, round_) in enumerate(order):
        assert len(server.missing) == len(ALL) - number
        with pytest.raises(IncompleteStepError, match="lacks round"):
            server.pushes()
        if number < len(readers):
            server.accept_pull(pull(readers[number]))
        give(server, push(rank, round_))
    assert server.pushes() == [(rank, number, f"{rank}.{number}") for rank, number in ALL]
    server.close()
    assert (server.version, server.step) == (STEP, STEP + 1)
    for reader in readers:
        server.accept_pull(pull(reader, STEP + 1))


#: How a push that would be right is made wrong, given the pushes that have come, and the error that it is.
Wrong = tuple[Callable[[Header, list[tuple[int, int]]], Header | None], type[errors.ProtocolError]]
VIOLATIONS: dict[str, Wrong] = {
    "a step that has not begun": (lambda header, _: replace(header, step=STEP + 1), errors.WrongStepError),
    "a step that is closed": (lambda header, _: replace(header, step=VERSION), errors.LateMessageError),
    "a step long ago": (lambda header, _: replace(header, step=0), errors.LateMessageError),
    "a rank without a share": (lambda header, _: replace(header, rank=5), errors.UnknownRankError),
    "a rank that does not exist": (lambda header, _: replace(header, rank=99), errors.UnknownRankError),
    "another server": (lambda header, _: replace(header, rank=SHARD), errors.UnknownRankError),
    "another server's shard": (lambda header, _: replace(header, shard=SHARD - 1), WrongShardError),
    "a payload that is too long": (lambda header, _: replace(header, length=LENGTH + 1), errors.WrongSizeError),
    "no payload": (lambda header, _: replace(header, length=0), errors.WrongSizeError),
    "values": (lambda header, _: replace(header, kind=MessageKind.VALUES), errors.WrongKindError),
    "norms": (lambda header, _: replace(header, kind=MessageKind.NORMS), errors.WrongKindError),
    "a round that is skipped": (lambda header, _: replace(header, round=header.round + 1), errors.WrongRoundError),
    "a push again": (lambda _, come: push(*come[-1]) if come else None, errors.DuplicateError),
}


@given(ORDERS, some.integers(0, len(ALL) - 1), some.sampled_from(sorted(VIOLATIONS)))
def test_every_violation_is_found_at_any_moment_and_changes_nothing(order: list[tuple[int, int]], at: int, kind: str) -> None:
    spoil, error = VIOLATIONS[kind]
    server = opened()
    for rank, number in order[:at]:
        give(server, push(rank, number))
    wrong = spoil(push(*order[at]), order[:at])
    if wrong is not None:
        with pytest.raises(error):
            server.accept_push(wrong)
    for rank, number in order[at:]:
        give(server, push(rank, number))
    assert [(rank, number) for rank, number, _ in server.pushes()] == ALL


@given(ORDERS, some.integers(0, len(ALL) - 1))
def test_parameters_are_not_pulled_before_all_pushes_are_in(order: list[tuple[int, int]], at: int) -> None:
    server = opened()
    for rank, number in order[:at]:
        give(server, push(rank, number))
    rank, number = order[-1]
    with pytest.raises(EarlyPullError, match=f"step {STEP} still lacks .*round {number} of rank {rank}"):
        server.accept_pull(pull(5, STEP + 1))


def test_errors_say_what_was_expected() -> None:
    server = opened()
    give(server, push(2, 0))
    cases = (
        (push(2, 0), "rank 2 has pushed round 0 already; expected round 1 of 2"),
        (push(4, 2), "expected round 0 of 3 of rank 4"),
        (push(5, 0), "only ranks 2, 3, 4 push to server 1 in step 5"),
        (push(3, 0, step=9), "PUSH of step 9, shard 1, round 0 from rank 3: expected step 5"),
    )
    for header, words in cases:
        with pytest.raises(errors.ProtocolError, match=words):
            server.accept_push(header)
    give(server, push(3, 0))
    with pytest.raises(errors.WrongRoundError, match="expected nothing more after 1 rounds of rank 3"):
        server.accept_push(push(3, 1))


def test_each_reader_pulls_once_and_no_other_rank_does() -> None:
    server = opened()
    server.accept_pull(pull(3))
    for header, error in (
        (pull(3), errors.DuplicateError),
        (pull(SHARD), errors.UnknownRankError),
        (pull(0, STEP + 2), errors.WrongStepError),
        (pull(0, VERSION), errors.LateMessageError),
        (replace(pull(0), round=1), errors.WrongRoundError),
        (replace(pull(0), length=8), errors.WrongSizeError),
        (replace(pull(0), shard=0), WrongShardError),
        (push(0, 0), errors.WrongKindError),
    ):
        with pytest.raises(error):
            server.accept_pull(header)
    server.accept_pull(pull(0))


def test_a_step_is_opened_once_filled_and_closed() -> None:
    server: ShardServer[str] = ShardServer(SHARD, VERSION, READERS)
    with pytest.raises(errors.WrongStepError, match="step 5 has not been opened"):
        server.accept_push(push(2, 0))
    with pytest.raises(IncompleteStepError, match="lacks all pushes: it has not been opened"):
        server.close()
    server.open(ROUNDS, LENGTH)
    with pytest.raises(errors.ProtocolError, match="has opened step 5 already"):
        server.open(ROUNDS, LENGTH)
    with pytest.raises(IncompleteStepError):
        server.close()


def test_a_payload_needs_a_header_that_was_accepted() -> None:
    server = opened()
    with pytest.raises(errors.ProtocolError, match="its header was not accepted"):
        server.put(push(2, 0), "early")
    server.accept_push(push(2, 0))
    server.put(push(2, 0), "right")
    with pytest.raises(errors.DuplicateError, match="its payload is there already"):
        server.put(push(2, 0), "again")
