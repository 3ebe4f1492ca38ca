"""Applies a node's report that cannot be applied as a whole: in halves, until the rank at fault is alone. All others are applied; of that one its state
alone is, and why is told once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from paceline.api.core.context import Services
from paceline.api.core.troubles import Subject
from paceline.api.services.lifecycle.isolation import PhaseTurns
from paceline.cluster.protocol import Observed, ObservedRank, RankKey
from paceline.db.errors import DatabaseBusyError
from paceline.training.link import FailureReport

#: Applies what a report says of these ranks, of none: its deleted checkpoints, in a transaction of its own. Returns whether its channel still speaks.
Commit = Callable[[Observed, Sequence[RankKey]], Awaitable[bool]]


async def apply_apart(services: Services, observed: Observed, came_at: datetime, ranks: Sequence[RankKey], commit: Commit) -> bool:
    """Apply a report to these ranks, all open ones of its node. Returns whether its channel still speaks. Raises DatabaseBusyError."""
    if ranks:
        await _ReportParts(services, observed, came_at, commit).apply(ranks)
    return await commit(observed, ())


@dataclass(frozen=True)
class _ReportParts:
    services: Services
    observed: Observed
    came_at: datetime
    commit: Commit

    async def apply(self, ranks: Sequence[RankKey]) -> None:
        if len(ranks) == 1:
            await self._apply_one(ranks[0])
            return
        try:
            await self.commit(self.observed, ranks)
        except DatabaseBusyError:
            raise
        except Exception:  # noqa: BLE001 - raised again, and told, by the rank at fault
            middle = len(ranks) // 2
            await self.apply(ranks[:middle])
            await self.apply(ranks[middle:])

    async def _apply_one(self, key: RankKey) -> None:
        task = f"apply what is reported of rank {key.rank} of generation {key.generation}"
        turns = PhaseTurns(self.services, task, self.came_at, "only its state is taken over", passes_over=True)
        subject = Subject("job", key.job_id)
        if await turns.take(subject, partial(self.commit, self.observed, [key])) is not None:
            return
        bare = _bare(self.observed, key)
        await self.commit(bare, [key])
        if any(rank.drained for each in bare.assignments for rank in each.ranks):
            self.services.troubles.over(task, subject)  # it is not reported of any more


def _bare(observed: Observed, key: RankKey) -> Observed:
    """The report about this rank alone, with nothing but its state."""
    assignments = (
        replace(each, ranks=tuple(_state_of(rank) for rank in each.ranks if rank.rank == key.rank))
        for each in observed.assignments
        if (each.job_id, each.generation) == (key.job_id, key.generation)
    )
    return replace(observed, assignments=tuple(assignments))


def _state_of(rank: ObservedRank) -> ObservedRank:
    lost = "how it ended cannot be stored as its node reports it; what it has printed may tell"
    failure = FailureReport(kind="exit", rank=rank.rank, message=lost) if rank.outcome == "failed" else None
    return ObservedRank(rank=rank.rank, slot=rank.slot, state=rank.state, outcome=rank.outcome, failure=failure, drained=rank.drained)
