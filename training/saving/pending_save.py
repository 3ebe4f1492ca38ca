"""One save of all ranks, from its draft to the checkpoint.

It has two stages: each rank writes its part; rank 0 publishes. The work of a stage is local, so that any thread may do it. Between them the ranks
tell each other how it went, in a collective that only their training threads make, and only where all have agreed that it is time: the calls
of a group come in one order on every rank, and a second thread would have none. So a save needs no process but the other ranks. One whose
generation breaks off leaves debris: no rank waits for a thread that still writes there, and it cannot publish (`manifest.remove_debris`).
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

from paceline.distributed.process_group import Group
from paceline.training.errors import CheckpointSaveError
from paceline.training.saving.collective_work import run_on_all_ranks
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.uncommitted import SavedPart, UncommittedCheckpoint
from paceline.training.saving.writers import CheckpointWriter, done


class PendingSave:
    def __init__(self, group: Group, draft: UncommittedCheckpoint, writer: CheckpointWriter) -> None:
        """By all ranks together, each with its own `draft` of what `writer` has taken."""
        self._group, self._draft, self._writer = group, draft, writer
        self._receipts: list[SavedPart] | None = None  # None: that is the stage
        self._work: Future[Any] = writer.submit(self._draft.write)
        self.step = draft.manifest.step

    @property
    def work_is_done(self) -> bool:
        """True if this rank has finished the present stage, well or not."""
        return self._work.done()

    @property
    def is_written(self) -> bool:
        """True if all ranks have written their part."""
        return self._receipts is not None

    @property
    def write_seconds(self) -> float:
        """Seconds that the slowest rank took to write."""
        return max((each.seconds for each in self._receipts or ()), default=0.0)

    def advance(self) -> CommittedCheckpoint | None:
        """Wait for the present stage and go to the next. Returns the checkpoint after the last stage, else None.

        Collective. Raises CheckpointSaveError on every rank if the work failed on any; the save is over then.
        """
        if not self._work.done():
            self._group.wait_for_future(self._work)
        try:
            outcomes = run_on_all_ranks(self._group, self._work.result, CheckpointSaveError)
        except CheckpointSaveError:
            if self._draft.target.is_remote:
                self._writer.submit(self._draft.withdraw)  # a store that fails may take long to say so; the next write comes after it
            else:
                self._draft.withdraw()
            raise
        if self._receipts is not None:
            published: CommittedCheckpoint = outcomes[0]
            return published
        self._receipts = outcomes
        leads = self._group.rank == 0
        self._work = self._writer.submit(partial(self._draft.publish, outcomes)) if leads else done(None)
        return None
