"""The one writer of agents' channel messages: those that wait at the same moment are written in one transaction.

    result = await node_writer.write(node_id, work)      returns what `work(session)` returned, once it is durable
    spoke = await node_writer.report(node_id, channel_id, observed, now)

A thousand agents that connect or report at once are a few dozen transactions, and never a thousand that queue for the writer's turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, cast

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.gathering import Gathering
from paceline.api.services.ingest.progress import ProgressKeeper
from paceline.api.services.scheduling import observations
from paceline.api.services.scheduling.observations import NodeReport
from paceline.api.services.scheduling.report_isolation import apply_apart
from paceline.cluster.protocol import Observed, RankKey
from paceline.db.errors import DatabaseBusyError
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import jobs as job_rows
from paceline.db.repositories import nodes as node_rows

Result = TypeVar("Result")
#: A group this large holds the writer's turn for a fraction of the time that a request may take.
MOST_IN_GROUP = 32


@dataclass(frozen=True)
class NodeWork:
    node_id: str
    run: Callable[[AsyncSession], Awaitable[Any]]


@dataclass(frozen=True)
class Report:
    """An observation, and the channel that it came on."""

    node_id: str
    channel_id: str
    observed: Observed
    came_at: datetime


class NodeWriter:
    def __init__(self, services: Services, progress: ProgressKeeper) -> None:
        self._services, self._progress = services, progress
        self._gathering: Gathering[NodeWork | Report, Any] = Gathering("node-writer", self._commit, MOST_IN_GROUP)

    async def write(self, node_id: str, work: Callable[[AsyncSession], Awaitable[Result]]) -> Result:
        """The result of `work(session)`, once it is durable. `work` finds the row of the node locked (`session.get` gives it), and must
        stay within it and its dependent rows."""
        return cast(Result, await self._gathering.ask(node_id, NodeWork(node_id, work)))

    async def report(self, node_id: str, channel_id: str, observed: Observed, now: datetime) -> bool:
        """Apply an observation. Returns False when a later channel speaks for the node; none says hello before this transaction ends."""
        return cast(bool, await self._gathering.ask(node_id, Report(node_id, channel_id, observed, now)))

    def running(self) -> AbstractAsyncContextManager[None]:
        return self._gathering.running()

    async def _commit(self, group: Sequence[NodeWork | Report]) -> list[Any]:
        if drained := {job_id for each in group for job_id in _jobs_of_drained_ranks(each)}:
            await self._services.metrics.make_durable()  # their nodes forget what is noted as stored
            await self._progress.flush(drained)  # whoever sees that a job has ended sees its last step
        try:
            return await self._commit_together(group)
        except DatabaseBusyError:
            raise
        except Exception:
            if len(group) > 1 or not isinstance(group[0], Report):
                raise  # each has a turn of its own then, see Gathering
            return [await self._commit_apart(group[0])]

    async def _commit_together(self, group: Sequence[NodeWork | Report]) -> list[Any]:
        async with self._services.write() as session:
            rows = {row.id: row for row in await node_rows.all_locked(session, [each.node_id for each in group])}
            speaks = {each.node_id for each in group if isinstance(each, Report) and _channel_of(rows, each) == each.channel_id}
            heard = [each for each in group if isinstance(each, Report) and each.node_id in speaks]
            await observations.apply_all(session, [NodeReport(rows[each.node_id], each.observed, each.came_at) for each in heard])
            results = [each.node_id in speaks if isinstance(each, Report) else await each.run(session) for each in group]
            del rows  # until here they are what `session.get` finds
            return results

    async def _commit_apart(self, report: Report) -> bool:
        """Apply a report of which something cannot be applied: whatever one rank leaves behind, the others of its node are reported."""
        async with self._services.control.read() as session:
            found = await job_rows.open_ranks_to_report(session, [report.node_id])
            ranks = [RankKey(rank.job_id, rank.generation, rank.rank) for rank, _ in found.get(report.node_id, ())]

        async def commit(observed: Observed, only: Sequence[RankKey]) -> bool:
            async with self._services.write() as session:
                rows = {row.id: row for row in await node_rows.all_locked(session, [report.node_id])}
                if _channel_of(rows, report) != report.channel_id:
                    return False
                await observations.apply_all(session, [NodeReport(rows[report.node_id], observed, report.came_at, only)])
                return True

        return await apply_apart(self._services, report.observed, report.came_at, ranks, commit)


def _jobs_of_drained_ranks(message: NodeWork | Report) -> set[str]:
    """The jobs of a report that have ranks here whose last points and lines are with the coordinator."""
    assignments = message.observed.assignments if isinstance(message, Report) else ()
    return {assignment.job_id for assignment in assignments if any(rank.drained for rank in assignment.ranks)}


def _channel_of(rows: Mapping[str, NodeRow], report: Report) -> str | None:
    row = rows.get(report.node_id)
    return row.channel_id if row else None
