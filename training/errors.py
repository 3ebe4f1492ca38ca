"""Errors of a rank, and which side is at fault.

TrainingError
├── InvalidInputError        the user's: a missing file, an entrypoint that cannot be imported
│   ├── UnreadableSpecError   a spec that this version of Paceline refuses; another one has taken it
│   ├── TokenSetExistsError   a folder that is taken
│   └── WeightsExistError     the same
├── WorkerLostError          a process that made a part of a token set was killed
├── AbandonedError           peers were lost, and this rank got no place among the survivors
├── BadLossError            a step's loss is NaN, infinite or a spike, and the job's policy ends it before the update; the same on every rank
│   ├── LossNotFiniteError    the job stops
│   ├── LossSpikeError        the same
│   └── RollBackError         the job goes back to its newest checkpoint
├── StateTransferError       a new optimizer keeps other values than those of the ranks that it gets its state from
├── SampleAccountingError    ours: a step that would not have used every sample exactly once; it was not applied
├── CheckpointError
│   ├── CheckpointCorruptError     a hash, a size or a file does not match the manifest; an older one may do
│   │   └── CheckpointUnreachableError    it cannot be read here and now; nothing says that it is damaged
│   ├── CheckpointSaveError        this save failed; training may go on
│   │   └── StateChangedError      the state no longer has the form that the ranks have planned their parts for
│   └── NoUsableCheckpointError    restoring was required and nothing verifies
"""

from __future__ import annotations


class TrainingError(Exception):
    """Root of what the rank's own code raises."""


class InvalidInputError(TrainingError):
    """The job cannot run as submitted; the message says what to change."""


class UnreadableSpecError(InvalidInputError):
    """Today's schema refuses the stored spec of a job."""


class TokenSetExistsError(InvalidInputError):
    """Token sets are never overwritten."""


class WeightsExistError(InvalidInputError):
    """Exports are never overwritten."""


class WorkerLostError(TrainingError):
    """Running the same again goes on where it was."""


class AbandonedError(TrainingError):
    """The wait for a new generation is over."""


class StateTransferError(TrainingError):
    """The optimizers of two ranks do not keep the same tensors, so that neither can take the other's state."""


class SampleAccountingError(TrainingError):
    """The ranks together did not compute each micro-batch of a step exactly once."""


class CheckpointError(TrainingError):
    """A checkpoint cannot be saved or restored."""


class CheckpointCorruptError(CheckpointError):
    """A checkpoint's files differ from its manifest."""


class CheckpointUnreachableError(CheckpointCorruptError):
    """A checkpoint cannot be read from this node now, but may be whole: a file system is not mounted, or the folder is on another node."""


class CheckpointSaveError(CheckpointError):
    """A save that did not become a checkpoint."""


class StateChangedError(CheckpointSaveError):
    """A save of a state that no longer has the form for which the ranks have planned their parts: they have to plan anew."""


class NoUsableCheckpointError(CheckpointError):
    """No candidate checkpoint verifies, so that the run cannot be restored."""
