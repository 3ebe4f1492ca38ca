"""Sums over the ranks of a ring: reduce-scatter, then all-gather, in chunks that follow each other closely. No torch, no sockets.

Each rank sends to the next one only and receives from the one before (Patarasuk and Yuan 2009, bandwidth-optimal all-reduce): 2 (n - 1) / n of the
vector's bytes, whatever n is. A segment is divided into chunks, so that one chunk is added while the next ones are on their way. Each segment is
added up by the ranks in the order of the ring and then copied: the result is the same on every rank to the last bit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

from paceline.distributed.collectives.messages import RingHeader, RingMessage, RingPhase

#: Bytes of a chunk, at most. Smaller ones cost more messages, larger ones leave more of the sums uncovered (`scripts/bench/communication/sums.py`).
CHUNK_BYTES = 1 << 20
#: Chunks on their way at once.
DEPTH = 4
_NOTHING = memoryview(bytearray())


class Values(Protocol):
    """A flat vector of one data type."""

    element: int  # number of the data type, the same on all ranks
    itemsize: int  # bytes of an element

    def __len__(self) -> int: ...

    def part(self, first: int, last: int) -> memoryview:
        """Return the bytes of the elements `first` to `last`, the latter not included; not a copy."""
        ...

    def scratch(self, place: int, elements: int) -> memoryview:
        """Return room for so many elements; the same room for the same `place`."""
        ...

    def add(self, first: int, last: int, addend: memoryview) -> None:
        """Add the elements whose bytes are `addend` to the elements `first` to `last`."""
        ...


class Transport(Protocol):
    """A connection to the next rank and to the one before."""

    def start(self, outgoing: RingMessage, expected: RingHeader, room: memoryview) -> Callable[[], None]:
        """Start to send `outgoing` to the next rank and to receive from the one before; messages keep their order.

        Returns a function that waits until both are done: then the message `expected` has come, its payload in `room`, and `outgoing` may be
        changed. Raises `ProtocolError` where another message comes, or none any more.
        """
        ...

    def close(self) -> None:
        """Free the neighbours from waiting for this rank. May be called twice."""
        ...


class Segment(NamedTuple):
    """A range of elements, `last` not included."""

    first: int
    last: int

    def divide(self, parts: int) -> list[Segment]:
        """Divide it into so many ranges, as even as can be: empty ones where there are too few elements."""
        size, rest = divmod(self.last - self.first, parts)
        starts = [self.first + index * size + min(index, rest) for index in range(parts + 1)]
        return [Segment(*pair) for pair in pairwise(starts)]


class RingMove(NamedTuple):
    """The elements that one rank sends, and those that it receives meanwhile."""

    phase: RingPhase
    round: int
    chunk: int
    sends: Segment
    receives: Segment


def moves(phase: RingPhase, position: int, segments: Sequence[Segment], chunks: int) -> Iterator[RingMove]:
    """Yield what the rank at `position` does in a phase, in order. A rank ends the reduce-scatter with the segment after its own position."""
    size, ahead = len(segments), 1 if phase is RingPhase.ALL_GATHER else 0
    for round_ in range(size - 1):
        sends = segments[(position + ahead - round_) % size].divide(chunks)
        receives = segments[(position + ahead - round_ - 1) % size].divide(chunks)
        for chunk in range(chunks):
            yield RingMove(phase, round_, chunk, sends[chunk], receives[chunk])


class Ring:
    """One rank's side of the collectives over a ring of ranks. All ranks make the same calls in the same order.

    After an error the transport is closed, so that the neighbours are freed and free theirs in turn; the ring is of no use then.
    """

    def __init__(
        self, ranks: Sequence[int], rank: int, generation: int, transport: Transport, chunk_bytes: int = CHUNK_BYTES, depth: int = DEPTH
    ) -> None:
        """`ranks`: in the order of the ring. `rank`: this one."""
        if chunk_bytes < 1 or depth < 1:
            raise ValueError(f"a chunk has {chunk_bytes} bytes and {depth} are under way at once; both must be 1 or more")
        self.ranks, self.position = tuple(ranks), tuple(ranks).index(rank)
        self._generation, self._transport = generation, transport
        self._chunk_bytes, self._depth = chunk_bytes, depth
        self._calls = 0

    @property
    def size(self) -> int:
        return len(self.ranks)

    def all_reduce(self, values: Values, step: int) -> None:
        """Replace `values` by their sum over all ranks, in place."""
        self._run(values, step, (RingPhase.REDUCE_SCATTER, RingPhase.ALL_GATHER))

    def reduce_scatter(self, values: Values, step: int) -> Segment:
        """Sum one segment of `values` over all ranks, in place, and return it; another one on each rank. The rest of `values` is of no use."""
        self._run(values, step, (RingPhase.REDUCE_SCATTER,))
        return self.own_segment(len(values))

    def all_gather(self, values: Values, step: int) -> None:
        """Replace every segment of `values` by that of the rank that `reduce_scatter` left it with."""
        self._run(values, step, (RingPhase.ALL_GATHER,))

    def close(self) -> None:
        """Free the neighbours from waiting for this rank. May be called twice."""
        self._transport.close()

    def own_segment(self, elements: int) -> Segment:
        """Return the segment of so many elements that `reduce_scatter` leaves this rank with."""
        return Segment(0, elements).divide(self.size)[(self.position + 1) % self.size]

    def _run(self, values: Values, step: int, phases: Sequence[RingPhase]) -> None:
        if self.size == 1:
            return
        try:
            self._exchange(values, step, phases)
        except BaseException:
            self._transport.close()
            raise
        self._calls += 1

    def _exchange(self, values: Values, step: int, phases: Sequence[RingPhase]) -> None:
        segments = Segment(0, len(values)).divide(self.size)
        longest = (segments[0].last - segments[0].first) * values.itemsize
        chunks = max(1, -(-longest // self._chunk_bytes))
        # All ranks have the same number of elements, of the same kind, or nothing is sent: rooms have the right size from here on.
        agreed = (RingPhase.AGREE, 0, chunks, len(values) * values.itemsize)
        self._transport.start(RingMessage(self._header(step, values, *agreed), _NOTHING), self._expected(step, values, *agreed), _NOTHING)()
        # A move is started once the one a whole round before it is done, which received and added what it sends.
        window = min(self._depth, chunks)
        under_way: deque[Callable[[], None]] = deque()
        for phase in phases:
            for number, move in enumerate(moves(phase, self.position, segments, chunks)):
                if len(under_way) == window:
                    under_way.popleft()()
                under_way.append(self._start(values, step, move, number % window))
        while under_way:
            under_way.popleft()()

    def _start(self, values: Values, step: int, move: RingMove, place: int) -> Callable[[], None]:
        """Start a move and return a function that ends it: what has come is added or stands where it belongs."""
        length = (move.sends.last - move.sends.first) * values.itemsize
        due = (move.receives.last - move.receives.first) * values.itemsize
        outgoing = RingMessage(self._header(step, values, move.phase, move.round, move.chunk, length), values.part(*move.sends))
        expected = self._expected(step, values, move.phase, move.round, move.chunk, due)
        if move.phase is RingPhase.ALL_GATHER:
            return self._transport.start(outgoing, expected, values.part(*move.receives))
        room = values.scratch(place, move.receives.last - move.receives.first)
        finish = self._transport.start(outgoing, expected, room)

        def add() -> None:
            finish()
            values.add(*move.receives, room)

        return add

    def _header(self, step: int, values: Values, phase: RingPhase, round_: int, chunk: int, length: int) -> RingHeader:
        return RingHeader(self._generation, step, self._calls, phase, round_, self.ranks[self.position], chunk, values.element, length)

    def _expected(self, step: int, values: Values, phase: RingPhase, round_: int, chunk: int, length: int) -> RingHeader:
        before = self.ranks[(self.position - 1) % self.size]
        return RingHeader(self._generation, step, self._calls, phase, round_, before, chunk, values.element, length)
