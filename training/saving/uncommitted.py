"""One rank's share of a checkpoint in progress: snapshotted by all ranks together, then written by any thread alone."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
from torch import Tensor
from torch.distributed.checkpoint.storage import WriteResult

from paceline.distributed.process_group import Group
from paceline.distributed.reduction import ReductionState
from paceline.monitoring.file_hashes import File, describe
from paceline.monitoring.sinks import on_the_wire
from paceline.training.data.sizes import size_of
from paceline.training.errors import CheckpointSaveError, TrainingError
from paceline.training.saving import fingerprint, unsent
from paceline.training.saving import manifest as manifests
from paceline.training.saving.assembly import whole_tensors
from paceline.training.saving.checkpoint_directory import CheckpointDirectory
from paceline.training.saving.collective_work import attempt
from paceline.training.saving.manifest import CommittedCheckpoint, Manifest
from paceline.training.saving.parts import RankPart, SavePlanner, explaining_errors
from paceline.training.saving.shards import Tensors
from paceline.training.saving.storage import SaveTarget
from paceline.training.saving.writers import Values
from paceline.training.spec import derived
from paceline.training.state import TrainState


class Written(NamedTuple):
    """Result of one rank's write."""

    results: list[WriteResult]
    files: dict[str, File]
    parameters: dict[str, str]  # hashes by name, of its share


class SavedPart(NamedTuple):
    """`Written`, serialized. Only rank 0 decodes it, to keep the work off the other ranks' training threads."""

    written: bytes
    seconds: float  # that it took


@dataclass(frozen=True)
class UncommittedCheckpoint:
    rank: int
    target: SaveTarget
    manifest: Manifest  # but for what is known only when all ranks have written
    part: RankPart | TrainingError  # an error: of the plan or the snapshot on this rank; then there is nothing to write
    share: Mapping[str, Tensor]  # parameters and buffers that this rank hashes, whole
    unsent: ReductionState = field(
        default_factory=dict
    )  # what this rank's compressed gradients have left out: tensors that nothing changes

    def write(self) -> SavedPart:
        """Write this rank's files and hash them; once this returns, they are durable. Raises CheckpointSaveError, also for a snapshot that failed, or an OSError."""
        if isinstance(self.part, TrainingError):
            raise self.part
        started = time.monotonic()
        results, scratch = self.part.write(), self.target.scratch
        with explaining_errors(scratch):
            unsent.write(scratch, self.rank, self.unsent)
        files = {path.name: describe(path) for path in sorted(scratch.glob(f"__{self.rank}_*"))}
        self.target.store(files)
        parameters = {name: fingerprint.hash_tensor(tensor) for name, tensor in self.share.items()}
        return SavedPart(pickle.dumps(Written(results, files, parameters)), time.monotonic() - started)

    def publish(self, parts: Sequence[SavedPart]) -> CommittedCheckpoint:
        """Write, on rank 0, the index and the manifest, and commit, when every rank has written. Raises as `write` does."""
        assert isinstance(self.part, RankPart), "a rank whose part failed has told so"
        written: list[Written] = [pickle.loads(part.written) for part in parts]
        index = self.part.write_index([each.results for each in written])
        files = {name: file for each in written for name, file in each.files.items()}
        parameters = fingerprint.combine_hashes(each.parameters for each in written)
        files[index.name] = describe(index)
        self.target.store({index.name: files[index.name]})
        manifest = msgspec.structs.replace(self.manifest, files=files, parameters_sha256=parameters)
        return CommittedCheckpoint(self.target.place, manifest, self.target.publish(manifest))

    def withdraw(self) -> None:
        """Delete the files of a failed save, once no rank writes any more."""
        self.target.withdraw(leads=self.rank == 0)


def snapshot_state(
    checkpoints: CheckpointDirectory,
    state: TrainState,
    metrics: dict[str, float],
    snapshot: Callable[[Values], Values],
    *,
    agree: bool = True,
) -> UncommittedCheckpoint:
    """Snapshot the state of a job for a checkpoint; see `snapshot_tensors`."""
    target = checkpoints.storage.target(manifests.directory_name(state.step, checkpoints.generation))
    tensors, manifest = checkpoints.index.tensors_of(state), describe_state(checkpoints, state, metrics)
    made = snapshot_tensors(checkpoints.group, checkpoints.planner, target, tensors, manifest, snapshot, agree=agree)
    return replace(made, unsent=state.unsent)


def snapshot_tensors(
    group: Group,
    planner: SavePlanner,
    target: SaveTarget,
    tensors: Tensors,
    manifest: Manifest,
    snapshot: Callable[[Values], Values],
    *,
    agree: bool = True,
) -> UncommittedCheckpoint:
    """Plan and snapshot a checkpoint. Collective.

    `snapshot` keeps the values until they are written. `manifest` lacks only what the write produces. Raises CheckpointSaveError on every
    rank if the plan fails on any. A snapshot that fails on this rank is raised where the others learn of it: by the write. Without `agree`, the same is
    true of a plan: see `SavePlanner.part`.
    """
    try:
        part = planner.part(group, tensors, target, agree=agree)
        share = whole_tensors(tensors["model"], planner.owners, group)
    except CheckpointSaveError as error:
        if not agree:
            return UncommittedCheckpoint(group.rank, target, manifest, error, {})
        target.withdraw(leads=group.rank == 0)
        raise
    values: Values = {**part.data, **share}
    snapshots = attempt(explaining_errors(target.scratch)(lambda: snapshot(values)), CheckpointSaveError)
    if isinstance(snapshots, TrainingError):
        return UncommittedCheckpoint(group.rank, target, manifest, snapshots, {})
    part = replace(part, data={position: snapshots[position] for position in part.data})
    return UncommittedCheckpoint(group.rank, target, manifest, part, {name: snapshots[name] for name in share})


def describe_state(checkpoints: CheckpointDirectory, state: TrainState, metrics: dict[str, float]) -> Manifest:
    return Manifest(
        job_id=checkpoints.job_id,
        step=state.step,
        generation=checkpoints.generation,
        world_size=checkpoints.group.world_size,
        seed=derived.training_of(checkpoints.spec).seed,
        data=size_of(state.task.train),
        spec_sha256=checkpoints.spec_sha256,
        created=time.time(),
        best=state.best,
        loss_scale=state.scale.saved,
        loss_guard=state.guard,
        gave_up_lossy=state.communication is not None and state.communication.gave_up_lossy,
        metrics={name: on_the_wire(value) for name, value in metrics.items()},
        files={},
    )
