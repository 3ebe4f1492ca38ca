"""Which of two versions of a file is the later one, where two processes of a job have written it on two nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from sqlalchemy.ext.asyncio import AsyncSession

from paceline.db.models.artifacts import ArtifactRow
from paceline.db.repositories import rank_marks


@dataclass(frozen=True)
class FileVersions:
    """Compares versions of a job's files. `left_with`: the last generation in which a process had a place, by the generation and the rank that
    it was started as."""

    left_with: Mapping[tuple[int, int], int]

    @classmethod
    async def of_job(cls, session: AsyncSession, job_id: str, rank: int) -> Self:
        """The versions of files of the processes that were started as this rank."""
        return cls(await rank_marks.last_generations(session, job_id, rank))

    def is_outdated(self, row: ArtifactRow, known: Iterable[ArtifactRow]) -> bool:
        """Whether a stored version of another process, among the `known` ones of its path, is later."""
        place = (row.generation, row.rank)
        return any(self.is_later(each, row) for each in known if each.stored_at and (each.generation, each.rank) != place)

    def is_later(self, row: ArtifactRow, other: ArtifactRow) -> bool:
        """Whether a version is later than that of another process. That of a process which was started after the other had left the job is,
        whatever the clocks of their nodes say; between processes that were there together, time decides."""
        if self._began_after(row, other):
            return True
        return not self._began_after(other, row) and (row.changed_ns or 0) > (other.changed_ns or 0)

    def _began_after(self, row: ArtifactRow, other: ArtifactRow) -> bool:
        return row.generation > self.left_with.get((other.generation, other.rank), other.generation)
