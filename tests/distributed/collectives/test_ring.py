"""The ring without torch: every number of ranks, every length, over queues and TCP; what does not belong, and ranks that are gone."""

from __future__ import annotations

import queue
import struct
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from paceline.distributed import protocol_errors as errors
from paceline.distributed.collectives.arrays import ArrayValues
from paceline.distributed.collectives.messages import RingHeader, RingMessage, RingPhase
from paceline.distributed.collectives.queues import QueueTransport, ring_of_queues
from paceline.distributed.collectives.ring import Ring, Segment, moves
from tests.distributed.collectives.rings import Meddler, on_all, results, ring_of_sockets, rings, transports

KINDS = ("queues", "sockets")


def numbers(rank: int, length: int, typecode: str = "d") -> array[Any]:
    return array(typecode, [rank * length + index for index in range(length)])


def sums(size: int, length: int) -> list[int]:
    return [sum(rank * length + index for rank in range(size)) for index in range(length)]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(
    size=some.integers(1, 9),
    length=some.integers(0, 300),
    chunk_bytes=some.integers(1, 700),
    depth=some.integers(1, 5),
    typecode=some.sampled_from("dqi"),
)
def test_every_rank_has_the_sum(kind: str, size: int, length: int, chunk_bytes: int, depth: int, typecode: str) -> None:
    with transports(kind, size) as connections:
        found = rings(connections, chunk_bytes=chunk_bytes, depth=depth)

        def sum_twice(position: int) -> list[list[Any]]:
            kept = []
            for step in (1, 2):
                values = ArrayValues(numbers(position, length, typecode))
                found[position].all_reduce(values, step)
                kept.append(list(values.numbers))
            return kept

        assert results(size, sum_twice) == [[sums(size, length)] * 2] * size


@settings(max_examples=40, deadline=None)
@given(size=some.integers(1, 9), length=some.integers(0, 100))
def test_a_reduce_scatter_leaves_each_rank_its_segment_and_an_all_gather_shares_them(size: int, length: int) -> None:
    found = rings(ring_of_queues(size, 20.0))

    def both(position: int) -> tuple[Segment, list[Any], list[Any]]:
        values = ArrayValues(numbers(position, length))
        own = found[position].reduce_scatter(values, 1)
        scattered = list(values.numbers[own.first : own.last])
        found[position].all_gather(values, 1)
        return own, scattered, list(values.numbers)

    expected, covered = sums(size, length), []
    for own, scattered, gathered in results(size, both):
        assert scattered == expected[own.first : own.last]
        assert gathered == expected
        covered += range(own.first, own.last)
    assert sorted(covered) == list(range(length))


def test_every_rank_sends_two_n_minus_one_nths_of_the_vector() -> None:
    segments = Segment(0, 1000).divide(4)
    for position in range(4):
        sent = [move.sends for phase in (RingPhase.REDUCE_SCATTER, RingPhase.ALL_GATHER) for move in moves(phase, position, segments, 3)]
        assert sum(last - first for first, last in sent) == 2 * 3 / 4 * 1000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"generation": 9}, errors.WrongGenerationError),
        ({"step": 9}, errors.WrongStepError),
        ({"step": 0}, errors.LateMessageError),
        ({"round": 9}, errors.WrongRoundError),
        ({"chunk": 0}, errors.DuplicateError),
        ({"source": 2}, errors.UnknownRankError),
        ({"element": 1}, errors.WrongKindError),
        ({"length": 1}, errors.WrongSizeError),
    ],
)
def test_a_message_that_does_not_belong_is_named_and_frees_all_ranks(kind: str, change: dict[str, Any], error: type[Exception]) -> None:
    with transports(kind, 4) as whole:
        connections: list[Any] = [*whole]
        connections[1] = Meddler(connections[1], lambda header: header._replace(**change), at=4)
        found = rings(connections)
        ends = on_all(4, lambda position: found[position].all_reduce(ArrayValues(numbers(position, 100)), 1))
    assert isinstance(ends[2].exception(), error)
    assert all(isinstance(each.exception(), errors.PeerLostError) for each in (ends[0], ends[1], ends[3]))


def test_bytes_that_are_no_message_are_told_from_one_and_free_all_ranks() -> None:
    """As from a program that has found the port of a ring: where the first message is due, 80 bytes of something else come."""
    with ring_of_sockets(3) as connections:
        found = rings(connections)
        connections[0]._to_next.sendall(b"GET / HTTP/1.1\r\n" * 5)
        ends = on_all(3, lambda position: found[position].all_reduce(ArrayValues(numbers(position, 100)), 1))
    with pytest.raises(errors.ProtocolError, match=r"is no header: expected 10 numbers, the first 0x52490001"):
        ends[1].result()
    assert all(isinstance(each.exception(), errors.PeerLostError) for each in (ends[0], ends[2]))


def test_vectors_of_two_lengths_or_types_are_told_before_anything_is_sent() -> None:
    for other, error in ((numbers(1, 101), errors.WrongSizeError), (numbers(1, 100, "q"), errors.WrongKindError)):
        found = rings(ring_of_queues(2, 20.0), chunk_bytes=8)
        kept = [numbers(0, 100), other]
        ends = on_all(2, lambda position, found=found, kept=kept: found[position].all_reduce(ArrayValues(kept[position]), 1))
        assert all(isinstance(each.exception(), error) for each in ends)
        assert kept[0] == numbers(0, 100)


@pytest.mark.parametrize("kind", KINDS)
def test_the_peers_of_a_rank_that_fails_are_freed_at_once(kind: str) -> None:
    """They would wait twenty seconds otherwise; the test may take a few."""

    class FailingError(Exception):
        pass

    class Failing(ArrayValues):
        def add(self, first: int, last: int, addend: memoryview) -> None:
            raise FailingError

    with transports(kind, 5) as connections:
        found = rings(connections)
        makers = [ArrayValues] * 3 + [Failing] + [ArrayValues]
        ends = on_all(5, lambda position: found[position].all_reduce(makers[position](numbers(position, 100)), 1))
        assert isinstance(ends[3].exception(), FailingError)
        assert all(isinstance(ends[position].exception(), errors.PeerLostError) for position in (0, 1, 2, 4))


def test_a_rank_that_says_nothing_is_named_with_what_was_due() -> None:
    links: list[Any] = [queue.SimpleQueue(), queue.SimpleQueue()]
    ring = Ring((4, 7), 4, 1, QueueTransport(links[0], links[1], 0.05))
    with pytest.raises(errors.PeerLostError, match=r"rank 7 has sent nothing for 0\.05 s; AGREE round 0, chunk 1 of call 0 in step 1"):
        ring.all_reduce(ArrayValues(numbers(0, 4)), 1)


def test_what_cannot_be_sent_is_raised_where_it_is_waited_for() -> None:
    due = RingHeader(1, step=1, call=0, phase=RingPhase.AGREE, round=0, source=1, chunk=1, element=0, length=0)
    nothing = memoryview(bytearray())
    with ring_of_sockets(2) as (first, second):
        finish = first.start(RingMessage(due._replace(source=0, step=1 << 63), nothing), due, nothing)
        second.start(RingMessage(due, nothing), due, nothing)
        with pytest.raises(struct.error):
            finish()


@pytest.mark.parametrize(("chunk_bytes", "depth"), [(0, 1), (1, 0)])
def test_no_chunks_are_refused(chunk_bytes: int, depth: int) -> None:
    with pytest.raises(ValueError, match="both must be 1 or more"):
        Ring((0, 1), 0, 1, ring_of_queues(2)[0], chunk_bytes, depth)


def test_these_tests_run_where_torch_is_not_installed() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import pytest; "
        "sys.exit(pytest.main(['--noconftest', '-q', '-n', '0', '-p', 'no:cacheprovider', '-k', 'not torch', *sys.argv[1:]]))"
    )
    here = Path(__file__)
    command = [sys.executable, "-c", code, str(here), str(here.with_name("test_messages.py")), str(here.with_name("test_placement.py"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=here.parents[3])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout
