"""Checkpoints are transactions: tensors into a scratch directory, hashes, manifest, rename.

Whatever kills a rank at whatever byte leaves either a whole checkpoint or debris that is never mistaken for one. All ranks call
`save`, `verify` and `load` together; each phase ends with every rank's outcome known to all, so that they fail together too.
A job saves through `saves.py`, which lets steps go on meanwhile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path

from paceline.distributed.process_group import Group
from paceline.objects.location import Place
from paceline.training.errors import CheckpointCorruptError, CheckpointUnreachableError
from paceline.training.saving import manifest as manifests
from paceline.training.saving import shards, unsent
from paceline.training.saving.checkpoint_directory import CheckpointDirectory
from paceline.training.saving.collective_work import run_on_all_ranks
from paceline.training.saving.manifest import CommittedCheckpoint, Manifest
from paceline.training.saving.object_manifests import bring
from paceline.training.saving.object_storage import RESTORES, ObjectStorage
from paceline.training.saving.pending_save import PendingSave
from paceline.training.saving.storage import remove_staged
from paceline.training.saving.uncommitted import UncommittedCheckpoint, snapshot_state
from paceline.training.saving.writers import BlockingWriter
from paceline.training.state import TrainState


def unreported(checkpoints: CheckpointDirectory, known: Collection[str]) -> list[CommittedCheckpoint]:
    """Return the complete checkpoints in the directory that are not `known`: the rank that saved one may have died before it reported
    it."""
    if checkpoints.group.rank != 0:
        return []
    return checkpoints.storage.published(known)


def save(checkpoints: CheckpointDirectory, state: TrainState, metrics: dict[str, float]) -> CommittedCheckpoint:
    """Write, hash and publish the state. Raises CheckpointSaveError on every rank if any of them failed."""
    return commit(checkpoints.group, snapshot_state(checkpoints, state, metrics, BlockingWriter().snapshot))


def commit(group: Group, made: UncommittedCheckpoint) -> CommittedCheckpoint:
    """Write, hash and publish, while all ranks wait. Raises CheckpointSaveError as `save` does."""
    under_way = PendingSave(group, made, BlockingWriter())
    while (committed := under_way.advance()) is None:
        pass
    return committed


def verify(group: Group, folder: Path) -> Manifest:
    """Check every hash, each rank a part of the files. Raises CheckpointCorruptError on every rank if any is wrong."""

    def check() -> Manifest:
        manifest = manifests.read(folder)
        manifests.verify(folder, manifest, sorted(manifest.files)[group.rank :: group.world_size])
        return manifest

    return run_on_all_ranks(group, check, CheckpointCorruptError)[0]


@contextlib.contextmanager
def on_this_node(checkpoints: CheckpointDirectory, place: Place) -> Iterator[Path]:
    """Have a checkpoint in a folder within the block: its own, or one that the ranks of this node fill together from an object store, and that
    is gone afterwards. Collective. Raises CheckpointCorruptError or CheckpointUnreachableError on every rank."""
    if isinstance(place, Path):
        yield place
        return
    group, storage = checkpoints.group, checkpoints.storage
    if not isinstance(storage, ObjectStorage):
        raise CheckpointUnreachableError(f"{place} is in an object store, and this job has a folder; set checkpoint.directory to the store")
    restores = storage.staging / RESTORES
    run_on_all_ranks(
        group, lambda: str(bring(place, storage.options, restores / f"g{checkpoints.generation}", group.rank)), CheckpointCorruptError
    )
    yield restores / f"g{checkpoints.generation}" / place.name
    group.all_gather_object(None)  # no rank reads it any more
    remove_staged(restores)


def load(group: Group, state: TrainState, folder: Path, manifest: Manifest) -> None:
    """Load a verified checkpoint into `state`, whatever world wrote it.

    Raises CheckpointCorruptError, with `state` half overwritten, if the disk fails after the verification.
    """
    tensors = shards.tensors_of(state)
    run_on_all_ranks(group, lambda: shards.read(tensors, folder), CheckpointCorruptError)
    shards.put_tensors(state, tensors)
    state.step, state.best, state.scale = manifest.step, manifest.best, state.scale.resumed(manifest.loss_scale)
    state.guard = manifest.loss_guard
    state.unsent = unsent.read(folder, group.rank, group.world_size)
