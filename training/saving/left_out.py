"""The steps whose updates a job leaves out, since it has gone back because of their losses: a file beside its checkpoints.

Not in a checkpoint: the one that the job goes back to is older than what is to be remembered. All generations from then on read the file, so that
later restarts leave out the same steps.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from paceline.monitoring.loss_watch import BadLossKind
from paceline.training.errors import CheckpointCorruptError, CheckpointSaveError
from paceline.training.saving.checkpoint_directory import CheckpointLocation
from paceline.training.saving.collective_work import run_on_all_ranks

FILE = ".left_out.json"


def read(checkpoints: CheckpointLocation) -> dict[int, BadLossKind]:
    """Return, by number, why each step is left out, as rank 0 reads it. Collective."""
    return run_on_all_ranks(checkpoints.group, lambda: _read(checkpoints) if checkpoints.group.rank == 0 else {}, CheckpointCorruptError)[0]


def add(checkpoints: CheckpointLocation, known: Mapping[int, BadLossKind], step: int, kind: BadLossKind) -> None:
    """Add a step to those left out. Collective; durable when it returns."""
    content = msgspec.json.encode({**known, step: kind})
    run_on_all_ranks(
        checkpoints.group,
        lambda: checkpoints.storage.write_note(FILE, content) if checkpoints.group.rank == 0 else None,
        CheckpointSaveError,
    )


def _read(checkpoints: CheckpointLocation) -> dict[int, BadLossKind]:
    content = checkpoints.storage.read_note(FILE)
    try:
        return {} if content is None else msgspec.json.decode(content, type=dict[int, BadLossKind])
    except msgspec.DecodeError as error:
        raise CheckpointCorruptError(
            f"{checkpoints.storage.place / FILE} cannot be read: {error}; remove it, and the steps that it named are tried again"
        ) from error
