"""One save of all ranks, from its snapshot to the checkpoint.

It has three stages: each rank writes its part; rank 0 publishes; each rank hears how that went. The work of a stage is local, so that any thread may
do it. Between them the ranks tell each other its outcomes, in a gather that only their training threads start, and only where all have agreed that
it is time: the calls of a group come in one order on every rank, and a second thread would have none. Behind steps nobody waits for the gather but
the work of the next stage. So a save needs no process but the other ranks. One whose generation breaks off leaves debris: no rank waits for a thread
that still writes there, and it cannot publish (`manifest.remove_debris`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any

from paceline.distributed.process_group import Group
from paceline.training.errors import CheckpointSaveError, TrainingError
from paceline.training.saving.collective_work import attempt, raise_first
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.uncommitted import SavedPart, UncommittedCheckpoint
from paceline.training.saving.writers import CheckpointWriter

#: Waits for the outcomes of a stage, and returns them by rank, pickled.
Outcomes = Callable[[], Sequence[bytes]]


class SaveStage(Enum):
    WRITE = auto()
    PUBLISH = auto()
    HEAR = auto()


class PendingSave:
    def __init__(
        self, group: Group, uncommitted: UncommittedCheckpoint, writer: CheckpointWriter, *, first: Callable[[], None] = lambda: None
    ) -> None:
        """By all ranks together, each with its own share of what `writer` has taken. `first` is called before anything is written."""
        self._group, self._uncommitted, self._writer, self._first = group, uncommitted, writer, first
        self._stage, self._work = SaveStage.WRITE, writer.submit(self._write)
        self.step = uncommitted.manifest.step
        self.write_seconds = 0.0  # that the slowest rank took to write, once all have published or failed

    @property
    def outcome_bytes(self) -> int | None:
        """Size of what this rank has to tell of the present stage, well or not; None while it is at work. Raises what its work raised."""
        return len(self._work.result()) if self._work.done() else None

    @property
    def is_written(self) -> bool:
        """True if all ranks have written their part."""
        return self._stage is not SaveStage.WRITE

    def advance(self) -> CommittedCheckpoint | None:
        """Wait for the present stage and go to the next. Returns the checkpoint after the last stage, else None.

        Collective. Raises CheckpointSaveError on every rank if the work failed on any; the save is over then.
        """
        if not self._work.done():
            self._group.wait_for_future(self._work)
        if self._stage is SaveStage.HEAR:
            return self._heard()
        outcomes = self._group.all_gather_object(self._work.result())
        self._go_on(lambda: outcomes)
        return None

    def advance_behind_steps(self, sizes: Sequence[int]) -> CommittedCheckpoint | None:
        """Go to the next stage without waiting, after a step in which all ranks had done the present one. `sizes`: `outcome_bytes` by rank.

        Collective. Returns and raises as `advance` does.
        """
        if self._stage is SaveStage.HEAR:
            return self._heard()
        self._go_on(self._group.start_gather(self._work.result(), sizes))
        return None

    def _go_on(self, outcomes: Outcomes) -> None:
        work = self._publish if self._stage is SaveStage.WRITE else self._hear
        self._stage = SaveStage.PUBLISH if self._stage is SaveStage.WRITE else SaveStage.HEAR
        self._work = self._writer.submit(partial(work, outcomes))

    # -- the work of the stages: its outcome, pickled

    def _write(self) -> bytes:
        self._first()
        return pickle.dumps(attempt(self._uncommitted.write, CheckpointSaveError))

    def _publish(self, outcomes: Outcomes) -> bytes:
        """Publish, on rank 0. The others have nothing to tell."""
        parts = [pickle.loads(outcome) for outcome in outcomes()]
        self.write_seconds = max((part.seconds for part in parts if isinstance(part, SavedPart)), default=0.0)
        return pickle.dumps(attempt(partial(self._publish_parts, parts), CheckpointSaveError)) if self._group.rank == 0 else b""

    def _publish_parts(self, parts: Sequence[SavedPart | TrainingError]) -> CommittedCheckpoint:
        raise_first(parts)
        published = attempt(lambda: self._uncommitted.publish([part for part in parts if isinstance(part, SavedPart)]), CheckpointSaveError)
        raise_first([published, *parts[1:]])
        assert isinstance(published, CommittedCheckpoint)
        return published

    def _hear(self, outcomes: Outcomes) -> bytes:
        return outcomes()[0]

    def _heard(self) -> CommittedCheckpoint:
        outcome: Any = pickle.loads(self._work.result())
        if isinstance(outcome, CommittedCheckpoint):
            return outcome
        if self._uncommitted.target.is_remote:
            self._writer.submit(self._uncommitted.withdraw)  # a store that fails may take long to say so; the next write comes after it
        else:
            self._uncommitted.withdraw()
        raise outcome
