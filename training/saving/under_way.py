"""One save of all ranks, from its draft to the checkpoint.

It has two stages: each rank writes its part; rank 0 publishes. The work of a stage is local, so that any thread may do it. Between them the ranks
tell each other how it went, in a collective that only their training threads make, and only where all have agreed that it is time: the calls
of a group come in one order on every rank, and a second thread would have none. So a save needs nobody but the other ranks. One whose
generation breaks off leaves debris: nobody waits for what still writes there, and it cannot publish (`manifest.remove_debris`).
"""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

from distributed.process_group import Group
from training.errors import CheckpointSaveError
from training.saving.draft import Draft, Receipt
from training.saving.manifest import Committed
from training.saving.together import together
from training.saving.writers import Writer, done


class UnderWay:
    def __init__(self, group: Group, draft: Draft, writer: Writer) -> None:
        """By all ranks together, each with its own `draft` of what `writer` has taken."""
        self._group, self._draft, self._writer = group, draft, writer
        self._receipts: list[Receipt] | None = None  # None: that is the stage
        self._work: Future[Any] = writer.submit(self._draft.write)
        self.step = draft.manifest.step

    @property
    def work_is_done(self) -> bool:
        """This rank's, of the present stage, well or not."""
        return self._work.done()

    @property
    def is_written(self) -> bool:
        """By all ranks."""
        return self._receipts is not None

    @property
    def write_seconds(self) -> float:
        """Of the rank that took longest."""
        return max((each.seconds for each in self._receipts or ()), default=0.0)

    def advance(self) -> Committed | None:
        """By all ranks together: wait for the work of this stage and go to the next; after the last, the checkpoint. Raises
        CheckpointSaveError on every rank if the work failed on any; the save is over then."""
        self._group.attend(self._work)
        try:
            outcomes = together(self._group, self._work.result, CheckpointSaveError)
        except CheckpointSaveError:
            self._draft.withdraw()
            raise
        if self._receipts is not None:
            published: Committed = outcomes[0]
            return published
        self._receipts = outcomes
        leads = self._group.rank == 0
        self._work = self._writer.submit(partial(self._draft.publish, outcomes)) if leads else done(None)
        return None
