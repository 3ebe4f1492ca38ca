"""One server's side of the protocol: which messages may come now, and which are missing. A state machine without torch or sockets.

A server is always between two updates. It has applied those of the steps up to `version`; until it closes the step after that it
answers pulls of the parameters that the step begins with, and takes the pushes of that step. Whatever else comes is an error that says
what was expected, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Generic, TypeVar

from paceline.distributed.parameter_server.errors import EarlyPullError, IncompleteStepError, WrongShardError
from paceline.distributed.parameter_server.messages import Header, MessageKind, require_length, require_step
from paceline.distributed.protocol_errors import (
    DuplicateError,
    LateMessageError,
    ProtocolError,
    UnknownRankError,
    WrongKindError,
    WrongRoundError,
    WrongStepError,
)

T = TypeVar("T")


class ShardServer(Generic[T]):
    """Checks and collects what one server receives. `T` is what a push carries: a list of tensors, or of numbers in tests.

    `shard`: the server's number. `version`: the newest step whose update is in its parameters. `readers`: the ranks that may pull.
    """

    def __init__(self, shard: int, version: int, readers: Collection[int]) -> None:
        self.shard, self.version, self._readers = shard, version, frozenset(readers)
        self._pulled: set[int] = set()
        self._rounds: Mapping[int, int] = {}
        self._length = 0
        self._is_open = False
        self._pushes: dict[tuple[int, int], T] = {}
        self._accepted: dict[int, int] = {}

    @property
    def step(self) -> int:
        """The step that is under way."""
        return self.version + 1

    def open(self, rounds: Mapping[int, int], length: int) -> None:
        """Expect the pushes of the step: `rounds` gives the number of pushes by worker, each of `length` bytes. Raises `ProtocolError`."""
        if self._is_open:
            raise ProtocolError(f"server {self.shard} has opened step {self.step} already")
        self._rounds, self._length, self._is_open = dict(rounds), length, True
        self._pushes, self._accepted = {}, dict.fromkeys(rounds, 0)

    def accept_pull(self, header: Header) -> None:
        """Check a pull of the parameters that the present step begins with. Each reader pulls them once."""
        self._require_own(header, MessageKind.PULL)
        if header.rank not in self._readers:
            raise UnknownRankError(f"{header}: only ranks {_listed(self._readers)} pull from server {self.shard}")
        if header.step == self.step + 1 and self.missing:
            raise EarlyPullError(f"{header}: step {self.step} still lacks {self._missing_in_words()}")
        require_step(header, self.step)
        if header.rank in self._pulled:
            raise DuplicateError(f"{header}: rank {header.rank} has pulled the parameters of step {self.step} already")
        if header.round != 0:
            raise WrongRoundError(f"{header}: a pull is round 0")
        require_length(header, 0)
        self._pulled.add(header.rank)

    def accept_push(self, header: Header) -> None:
        """Check the header of a push; its payload is handed over by `put`. A worker's rounds come in order."""
        self._require_own(header, MessageKind.PUSH)
        require_step(header, self.step)
        if not self._is_open:
            raise WrongStepError(f"{header}: step {self.step} has not been opened")
        if header.rank not in self._rounds:
            raise UnknownRankError(f"{header}: only ranks {_listed(self._rounds)} push to server {self.shard} in step {self.step}")
        due, total = self._accepted[header.rank], self._rounds[header.rank]
        if header.round < due:
            raise DuplicateError(f"{header}: rank {header.rank} has pushed round {header.round} already; {_due(due, total)}")
        if header.round > due or due == total:
            raise WrongRoundError(f"{header}: {_due(due, total)} of rank {header.rank}")
        require_length(header, self._length)
        self._accepted[header.rank] += 1

    def put(self, header: Header, value: T) -> None:
        """Keep the payload of a push that `accept_push` has let in. Raises `ProtocolError` for any other."""
        key = header.rank, header.round
        if header.round >= self._accepted.get(header.rank, 0) or header.step != self.step:
            raise ProtocolError(f"{header}: its header was not accepted")
        if key in self._pushes:
            raise DuplicateError(f"{header}: its payload is there already")
        self._pushes[key] = value

    @property
    def missing(self) -> list[tuple[int, int]]:
        """The (rank, round) whose payloads have not come; everything, before the step is opened."""
        if not self._is_open:
            return [(-1, 0)]
        return [(rank, number) for rank, total in self._rounds.items() for number in range(total) if (rank, number) not in self._pushes]

    def pushes(self) -> list[tuple[int, int, T]]:
        """Return (rank, round, value) of all pushes, ordered by rank and round whatever order they came in. Raises `IncompleteStepError`."""
        if self.missing:
            raise IncompleteStepError(f"step {self.step} of server {self.shard} lacks {self._missing_in_words()}")
        return [(rank, number, self._pushes[rank, number]) for rank, number in sorted(self._pushes)]

    def close(self) -> None:
        """Count the step's update as applied, or as skipped by all ranks. Raises `IncompleteStepError`."""
        if self.missing:
            raise IncompleteStepError(f"step {self.step} of server {self.shard} lacks {self._missing_in_words()}")
        self.version += 1
        self._is_open, self._pushes, self._accepted, self._pulled = False, {}, {}, set()

    def _require_own(self, header: Header, kind: MessageKind) -> None:
        if header.kind is not kind:
            raise WrongKindError(f"{header}: server {self.shard} expected {kind.name}")
        if header.shard != self.shard:
            raise WrongShardError(f"{header}: it came to server {self.shard}, which has shard {self.shard}")
        if header.step <= self.version:
            raise LateMessageError(f"{header}: step {header.step} is closed, and step {self.step} is under way")

    def _missing_in_words(self) -> str:
        if not self._is_open:
            return "all pushes: it has not been opened"
        return ", ".join(f"round {number} of rank {rank}" for rank, number in self.missing)


def _listed(ranks: Collection[int]) -> str:
    return ", ".join(map(str, sorted(ranks))) or "none"


def _due(due: int, total: int) -> str:
    return f"expected round {due} of {total}" if due < total else f"expected nothing more after {total} rounds"
