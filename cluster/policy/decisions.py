"""What the policies answer: one class for each thing that may happen to a job next.

Each says `to` (the job's next state), `reason`, `why` (in words), `culprits` (ranks that are to blame though they have not failed) and
`counts_as_restart` (whether it uses up one of `max_restarts`). What else it needs is its own. `api/loops/scheduler.py` and, for gangs
that run well, `api/loops/elasticity.py` match on the class and carry it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason, JobState

#: A job that stops for one of these goes back to the queue, for other nodes or for another size, and waits where it stood.
BACK_TO_QUEUE = frozenset({EndReason.PREEMPTED, EndReason.RESIZED})
#: Stops that leave the ranks up: they save at an agreed step, and exit by themselves. A script's are stopped, and save at SIGTERM.
SAVING = frozenset({EndReason.PAUSED, EndReason.TIME_LIMIT, *BACK_TO_QUEUE})
#: What ends a generation without anything having gone wrong.
_HARMLESS = frozenset({EndReason.COMPLETED, EndReason.CANCELLED, *SAVING})
#: States in which a job has no ranks.
_WITHOUT_RANKS = frozenset({JobState.QUEUED, JobState.PAUSED, *TERMINAL_JOB_STATES})


@dataclass(frozen=True)
class Members:
    """Ranks by their present numbers; `survivors`, `joining`, then `replaced` are the next generation, in this order."""

    survivors: tuple[int, ...]  # their processes live on
    joining: tuple[int, ...] = ()  # parked ones that take a place
    replaced: tuple[int, ...] = ()  # ended ones whose places go to new processes, in the same slots
    parking: tuple[int, ...] = ()  # survivors for whom there is no place
    whole: bool = True  # every part of the state is with a survivor that has the same place in the new world


@dataclass(frozen=True)
class Transition:
    """The job's state changes, and none of its ranks is told anything."""

    to: JobState
    reason: EndReason | None
    why: str
    culprits: ClassVar[tuple[int, ...]] = ()
    counts_as_restart: ClassVar[bool] = False

    @property
    def ends_generation(self) -> bool:
        return self.to in _WITHOUT_RANKS


@dataclass(frozen=True)
class Stop:
    """The job's ranks are to end, and its slots to become free. It is `stopping` until they are."""

    reason: EndReason
    why: str
    stops_ranks: bool = False  # although `reason` is one of SAVING
    counts_as_restart: bool = False  # it was to save, which came to nothing
    waits_for_user: bool = False  # nobody asked for this pause but its spec: from now on its intent is to be paused
    culprits: tuple[int, ...] = ()
    to: ClassVar[Literal[JobState.STOPPING]] = JobState.STOPPING
    action: ClassVar[str] = "gave_up"  # as the incident log calls it

    @property
    def ends_generation(self) -> bool:
        """Whether its ranks are to stop from now on, instead of saving first."""
        return self.stops_ranks or self.counts_as_restart or self.reason not in SAVING

    @property
    def is_fault(self) -> bool:
        """Whether it answers a fault, and not its user or the end of the run."""
        return self.reason not in _HARMLESS


@dataclass(frozen=True)
class Restart:
    """The job's ranks are stopped, and new processes start from the newest checkpoint wherever there is room."""

    reason: EndReason
    why: str
    counts_as_restart: bool = True
    culprits: tuple[int, ...] = ()
    to: ClassVar[Literal[JobState.RECOVERING]] = JobState.RECOVERING
    action: ClassVar[str] = "restarted"
    ends_generation: ClassVar[bool] = True
    is_fault: ClassVar[bool] = True


@dataclass(frozen=True)
class Regroup:
    """After a fault, living processes are the next generation at once. Where a part of the state is lost, they go back to the newest
    checkpoint."""

    reason: EndReason
    why: str
    members: Members
    culprits: tuple[int, ...] = ()
    is_futile: bool = False  # so many before it brought no step that it is one of `max_restarts`
    to: ClassVar[Literal[JobState.RECOVERING]] = JobState.RECOVERING
    at_boundary: ClassVar[bool] = False

    @property
    def action(self) -> str:
        return "closed_up" if self.members.whole else "fell_back"

    @property
    def counts_as_restart(self) -> bool:
        return not self.members.whole or self.is_futile

    @property
    def as_restart(self) -> Restart:
        """Return the decision to start over with new processes, for the same reason."""
        return Restart(self.reason, self.why, culprits=self.culprits)


@dataclass(frozen=True)
class ResizeGang:
    """Ranks come or go after a step that the present generation agrees on. Nothing has failed."""

    why: str
    members: Members
    culprits: ClassVar[tuple[int, ...]] = ()
    counts_as_restart: ClassVar[bool] = False
    reason: ClassVar[Literal[EndReason.RESIZED]] = EndReason.RESIZED
    to: ClassVar[Literal[JobState.RESIZING]] = JobState.RESIZING
    at_boundary: ClassVar[bool] = True


#: Decisions about one job, by what is known of it alone.
Decision = Transition | Stop | Restart | Regroup
#: Changes of a gang that runs well, decided along with all others and the queue.
GangChange = ResizeGang | Stop
