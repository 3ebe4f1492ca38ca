"""Reports once what was dropped of agents' uploads: one event per job, with an example, and one per node and minute for ranks that the node
does not hold.

Everything here is bounded, whatever an agent sends: the memory, the number of events, and the length of their texts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from time import monotonic

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.api.core.context import Services
from paceline.api.core.identity import node_actor
from paceline.api.services.ingest.selection import RefusedRecord, StoredBatches
from paceline.api.services.ingest.writer import MAX_NAMES_PER_JOB
from paceline.api.services.lifecycle import events
from paceline.cluster.protocol import RankKey
from paceline.db.models.nodes import NodeRow
from paceline.db.repositories import events as event_rows
from paceline.monitoring.points import RankBatch

REFUSED, CROWDED = "job.records_refused", "job.metric_names_full"
MAX_REMEMBERED = 10_000
SECONDS_BETWEEN = 60.0
SHOWN_CHARACTERS = 64


class Remembered:
    """The keys that were noted last, at most MAX_REMEMBERED of them."""

    def __init__(self) -> None:
        self._keys: OrderedDict[object, float] = OrderedDict()

    def note(self, key: object, now: float = 0.0) -> None:
        self._keys[key] = now
        self._keys.move_to_end(key)
        while len(self._keys) > MAX_REMEMBERED:
            self._keys.popitem(last=False)

    def when(self, key: object) -> float | None:
        return self._keys.get(key)

    def __len__(self) -> int:
        return len(self._keys)


class UploadWarnings:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._told = Remembered()  # (event type, job)
        self._places = Remembered()  # (node, place)
        self._nodes = Remembered()  # node, with when it was last told of

    async def of_strangers(self, node: NodeRow, strangers: Sequence[RankBatch]) -> None:
        """Report records of ranks that the node does not hold: a new place is reported once, and a node at most once a minute."""
        new = [place for place in map(RankKey.of, strangers) if self._places.when((node.id, place)) is None]
        before = self._nodes.when(node.id)
        if not new or (before is not None and monotonic() - before < SECONDS_BETWEEN):
            return
        self._nodes.note(node.id, monotonic())
        for place in new:
            self._places.note((node.id, place))
        job_id, generation, rank = min(new)
        job_id, more = job_id[:SHOWN_CHARACTERS], f", and of {len(new) - 1} more" if len(new) > 1 else ""
        async with self._services.write() as session:
            await events.record(
                session,
                type="upload.dropped",
                actor=node_actor(node),
                cause="unknown_rank",
                message=f"{node.name} sent news of rank {rank}, generation {generation} of job {job_id}{more}, which it does not hold; dropped",
                node_id=node.id,
                data={"job_id": job_id, "generation": generation, "rank": rank, "places": len(new)},
            )

    async def of_jobs(self, node: NodeRow, stored: StoredBatches, job_ids: set[str]) -> None:
        """Report the passed-over records of these jobs, once per job."""
        found = {(REFUSED, each.job_id): each for each in reversed(stored.refused) if each.job_id in job_ids}
        crowded = {(CROWDED, job_id): name for job_id, name in stored.crowded.items() if job_id in job_ids}
        new = [key for key in (*found, *crowded) if self._told.when(key) is None]
        if not new:
            return
        async with self._services.write() as session:
            for type, job_id in new:
                if not await event_rows.has_any(session, job_id, type):
                    await self._record_warning(session, node, type, job_id, found, crowded)
        for key in new:
            self._told.note(key)

    @staticmethod
    async def _record_warning(
        session: AsyncSession,
        node: NodeRow,
        type: str,
        job_id: str,
        refused: Mapping[tuple[str, str], RefusedRecord],
        crowded: Mapping[tuple[str, str], str],
    ) -> None:
        if type == REFUSED:
            each = refused[type, job_id]
            message = (
                f"{each.count} records of rank {each.rank} cannot be stored and are dropped; the rest is kept. The first: {each.example}"
            )
            cause, generation, data = "bad_record", each.generation, {"rank": each.rank, "count": each.count, "example": each.example}
        else:
            name = crowded[type, job_id][:SHOWN_CHARACTERS]
            message = f"it has {MAX_NAMES_PER_JOB} metric names, the most that one job may have; values of further ones, such as {name}, are dropped"
            cause, generation, data = "too_many_names", None, {"limit": MAX_NAMES_PER_JOB, "example": name}
        await events.record(
            session,
            type=type,
            actor=node_actor(node),
            cause=cause,
            message=message,
            job_id=job_id,
            node_id=node.id,
            generation=generation,
            data=data,
        )
