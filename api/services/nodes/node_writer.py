"""The one writer of agents' channel messages: those that wait at the same moment are written in one transaction.

    result = await node_writer.write(node_id, work)      returns what `work(session)` returned, once it is durable

A thousand agents that connect or report at once are a few dozen transactions, and never a thousand that queue for the writer's turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar, cast

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.gathering import Gathering
from paceline.db.repositories import nodes as node_rows

Result = TypeVar("Result")
Work = Callable[[AsyncSession], Awaitable[Any]]
#: A group this large holds the writer's turn for a fraction of the time that a request may take.
MOST_IN_GROUP = 32


class NodeWriter:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._gathering: Gathering[tuple[str, Work], Any] = Gathering("node-writer", self._commit, MOST_IN_GROUP)

    async def write(self, node_id: str, work: Callable[[AsyncSession], Awaitable[Result]]) -> Result:
        """The result of `work(session)`, once it is durable. `work` finds the row of the node locked (`session.get` gives it), and must
        stay within it and its dependent rows."""
        return cast(Result, await self._gathering.ask(node_id, (node_id, work)))

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._gathering.running()

    async def _commit(self, group: Sequence[tuple[str, Work]]) -> list[Any]:
        async with self._services.write() as session:
            rows = await node_rows.all_locked(session, [node_id for node_id, _ in group])
            results = [await work(session) for _, work in group]
            del rows  # until here they are what `session.get` finds
            return results
