"""What the coordinator asks of ranks that run here: passed on to their processes, or to what reads their stacks."""

from __future__ import annotations

from collections.abc import Callable

from paceline.cluster.agent.observer import RankObserver
from paceline.cluster.agent.ranks.rank_link import RankLink
from paceline.cluster.agent.ranks.rank_table import RankTable
from paceline.cluster.protocol import RankKey
from paceline.training.link import GradientsRequest, PauseRequest, Reform, Release, ToRank, TraceRequest


class RankRequests:
    """Passes requests on to ranks. None is kept: `reconcile` asks again until it is obeyed, also where the process is not connected now.

    A process is asked by the key that it was started with, whatever place it has taken since. `on_change` is called where there is
    something new to report.
    """

    def __init__(self, table: RankTable, link: RankLink, observer: RankObserver, on_change: Callable[[], None]) -> None:
        self._table, self._link, self._observer, self._on_change = table, link, observer, on_change

    def take_place(self, key: RankKey) -> None:
        """Ask a process that was moved to take the place under this key."""
        self._ask(key, Reform(order=self._table.ranks[key].order))

    def pause(self, key: RankKey) -> None:
        """Ask a rank to save and end."""
        self._ask(key, PauseRequest())

    def release(self, key: RankKey) -> None:
        """Ask a rank to leave its gang and end."""
        self._ask(key, Release())

    def record(self, key: RankKey, request: TraceRequest | GradientsRequest) -> None:
        """Ask a rank for a trace, or for the gradients of a step."""
        self._ask(key, request)

    def read_stacks(self, key: RankKey, request: str) -> None:
        """Read the Python stacks of a rank from outside: the rank itself may hang."""
        self._observer.read_stacks(key, request)

    def drop_stacks(self, key: RankKey) -> None:
        """Forget the stacks of a rank, which the coordinator has."""
        self._table.change(key, stacks=None)
        self._on_change()

    def _ask(self, key: RankKey, request: ToRank) -> None:
        self._link.ask(self._table.ranks[key].process, request)
