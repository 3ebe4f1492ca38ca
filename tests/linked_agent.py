"""The agent that the ranks of a test call."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from paceline.training.link import FromRank, Joined, PauseRequest, ProcessIdentity, RankHello, RankOrder, Reform, ToRank, encode_to_rank
from tests.ranks import RANK_TIMEOUT_SECONDS


class LinkedAgent:
    """The agent's end of the ranks' socket: hears them, orders survivors into new generations, and with `pause` asks each rank
    to pause as soon as it has joined."""

    def __init__(self, path: Path, *, pause: bool = False, patience: float = RANK_TIMEOUT_SECONDS) -> None:
        self.path, self._patience = path, patience
        self.heard: dict[tuple[int, int], list[Any]] = {}  # (generation, rank) -> messages
        self._pause = pause
        self._places: dict[socket.socket, tuple[int, int]] = {}
        self._connections: dict[ProcessIdentity, socket.socket] = {}
        self._news = threading.Condition()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(ConnectionError), connection, connection.makefile("rb") as lines:  # a killed rank may not have read all
            for line in lines:
                self._hear(connection, msgspec.json.decode(line, type=FromRank))

    def _hear(self, connection: socket.socket, message: FromRank) -> None:
        with self._news:
            if isinstance(message, RankHello):
                self._connections[message.birth] = connection
                self._places[connection] = (message.generation, message.rank)
            self.heard.setdefault(self._places[connection], []).append(message)
            self._news.notify_all()
        if self._pause and isinstance(message, Joined):
            connection.sendall(encode_to_rank(PauseRequest()))

    def order(self, order: RankOrder) -> None:
        """Tell the process that was born as `order.world.process` to take this place."""
        self.ask(order.world.process, Reform(order=order))

    def ask(self, process: ProcessIdentity, request: ToRank) -> None:
        with self._news:
            assert self._news.wait_for(lambda: process in self._connections, RANK_TIMEOUT_SECONDS), "the rank does not call"
            self._connections[process].sendall(encode_to_rank(request))

    def until(
        self, generation: int, rank: int, kind: type[Any] | tuple[type[Any], ...], which: Callable[[Any], bool] = lambda _: True
    ) -> Any:
        """The first such message of that rank."""

        def said() -> Any:
            return next((each for each in self.heard.get((generation, rank), []) if isinstance(each, kind) and which(each)), None)

        with self._news:
            found = self._news.wait_for(said, self._patience)
        assert found, f"no {kind} from rank {rank} of generation {generation}; heard {self.heard}"
        return found

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
