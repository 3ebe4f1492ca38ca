"""Checkpoints are transactions: tensors into a scratch directory, hashes, manifest, rename.

Whatever kills a rank at whatever byte leaves either a whole checkpoint or debris that is never mistaken for one. All ranks call
`save`, `verify` and `load` together; each phase ends with everyone's outcome known to everyone, so that they fail together too.
A job saves through `saves.py`, which lets steps go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from distributed.process_group import Group
from training.errors import CheckpointCorruptError
from training.saving import manifest as manifests
from training.saving import shards
from training.saving.draft import Draft, draft
from training.saving.manifest import Committed, Manifest
from training.saving.together import together
from training.saving.under_way import UnderWay
from training.saving.vault import Vault
from training.saving.writers import AtOnce
from training.state import TrainState


def untold(vault: Vault, known: Collection[str]) -> list[Committed]:
    """Whole checkpoints in here that nobody has named to this generation: who saved one may have died before it could tell."""
    if vault.group.rank != 0:
        return []
    return [Committed(folder, manifest, manifests.digest(folder)) for folder, manifest in manifests.published(vault.directory, known)]


def save(vault: Vault, state: TrainState, metrics: dict[str, float]) -> Committed:
    """Write, hash and publish the state. Raises CheckpointSaveError on every rank if any of them failed."""
    return commit(vault.group, draft(vault, state, metrics, AtOnce().take))


def commit(group: Group, made: Draft) -> Committed:
    """Write, hash and publish, while everyone waits. Raises as `save`."""
    under_way = UnderWay(group, made, AtOnce())
    while (committed := under_way.advance()) is None:
        pass
    return committed


def verify(group: Group, folder: Path) -> Manifest:
    """Check every hash, each rank a part of the files. Raises CheckpointCorruptError on every rank if any is wrong."""

    def check() -> Manifest:
        manifest = manifests.read(folder)
        manifests.verify(folder, manifest, sorted(manifest.files)[group.rank :: group.world_size])
        return manifest

    return together(group, check, CheckpointCorruptError)[0]


def load(group: Group, state: TrainState, folder: Path, manifest: Manifest) -> None:
    """Put a verified checkpoint into `state`, whatever world wrote it. Raises CheckpointCorruptError, with `state` half overwritten,
    where the disk fails since it was verified."""
    tensors = shards.tensors_of(state)
    together(group, lambda: shards.read(tensors, folder), CheckpointCorruptError)
    shards.put_tensors(state, tensors)
    state.step, state.best, state.scale = manifest.step, manifest.best, state.scale.resumed(manifest.loss_scale)
