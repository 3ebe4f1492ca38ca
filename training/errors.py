"""What can go wrong in a rank, and whose fault it is.

TrainingError
├── InvalidInputError        the user's: a missing file, an entrypoint that cannot be imported
│   ├── TokenSetExistsError   a folder that is taken
│   └── WeightsExistError     the same
├── WorkerLostError          a process that made a part of a token set was killed
├── AbandonedError           peers were lost, and nobody gave this rank a place among the survivors
├── SampleAccountingError    ours: a step that would not have used every sample exactly once; it was not applied
├── CheckpointError
│   ├── CheckpointCorruptError     a hash, a size or a file does not match the manifest; an older one may do
│   │   └── CheckpointUnreachableError    it cannot be read here and now; nothing says that it is damaged
│   ├── CheckpointSaveError        this save failed; training may go on
│   └── NoUsableCheckpointError    restoring was required and nothing verifies
"""

from __future__ import annotations


class TrainingError(Exception):
    """Root of what the rank's own code raises."""


class InvalidInputError(TrainingError):
    """The job cannot run as submitted; the message says what to change."""


class TokenSetExistsError(InvalidInputError):
    """Token sets are never overwritten."""


class WeightsExistError(InvalidInputError):
    """Exports are never overwritten."""


class WorkerLostError(TrainingError):
    """Running the same again goes on where it was."""


class AbandonedError(TrainingError):
    """The wait for a new generation is over."""


class SampleAccountingError(TrainingError):
    """The ranks together did not compute each micro-batch of a step exactly once."""


class CheckpointError(TrainingError):
    """Saving or restoring."""


class CheckpointCorruptError(CheckpointError):
    """What is on disk is not what the manifest says."""


class CheckpointUnreachableError(CheckpointCorruptError):
    """It cannot be read here and now. Elsewhere, or later, it may be whole: a file system is not mounted, a folder is of another node."""


class CheckpointSaveError(CheckpointError):
    """A save that did not become a checkpoint."""


class NoUsableCheckpointError(CheckpointError):
    """None of the candidates verifies."""
