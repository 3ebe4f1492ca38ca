"""Checkpoints are transactions: tensors into a scratch directory, hashes, manifest, rename.

Whatever kills a rank at whatever byte leaves either a whole checkpoint or debris that is never mistaken for one. All ranks call
`save`, `verify` and `load` together; each phase ends with everyone's outcome known to everyone, so that they fail together too.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from distributed.process_group import Group
from monitoring.sinks import on_the_wire
from training import fingerprint, shards
from training import manifest as manifests
from training.assembly import whole_tensors
from training.errors import CheckpointCorruptError, CheckpointSaveError
from training.manifest import File, Manifest
from training.state import TrainState, training_of
from training.together import together
from training.vault import Vault


@dataclass(frozen=True)
class Committed:
    directory: Path
    manifest: Manifest
    manifest_sha256: str

    @property
    def announcement(self) -> dict[str, Any]:
        """What the coordinator is to know of it."""
        return {
            "directory": str(self.directory),
            "step": self.manifest.step,
            "generation": self.manifest.generation,
            "bytes": self.manifest.bytes,
            "manifest_sha256": self.manifest_sha256,
            "parameters_sha256": self.manifest.parameters_sha256,
            "metrics": self.manifest.metrics,
        }


def untold(vault: Vault, known: Collection[str]) -> list[Committed]:
    """Whole checkpoints in here that nobody has named to this generation: who saved one may have died before it could tell."""
    if vault.group.rank != 0:
        return []
    return [Committed(folder, manifest, manifests.digest(folder)) for folder, manifest in manifests.published(vault.directory, known)]


def save(vault: Vault, state: TrainState, metrics: dict[str, float]) -> Committed:
    """Write, hash and publish the state. Raises CheckpointSaveError on every rank if any of them failed."""
    name = manifests.directory_name(state.step, vault.generation)
    final, scratch = vault.directory / name, vault.directory / f"{name}{manifests.SCRATCH}"
    leads = vault.group.rank == 0
    together(vault.group, lambda: manifests.make_scratch(scratch) if leads else None, CheckpointSaveError)
    try:
        tensors = shards.tensors_of(state)
        shards.write(vault.group, tensors, scratch)
        share = whole_tensors(tensors["model"], fingerprint.owners(tensors["model"], vault.group.world_size), vault.group)
        parts = together(vault.group, lambda: hash_own(vault.group.rank, scratch, share), CheckpointSaveError)
        files = {name: file for part, _ in parts for name, file in part.items()}
        manifest = describe_state(vault, state, metrics, files, fingerprint.combined(share for _, share in parts))
        digests = together(vault.group, lambda: manifests.publish(scratch, final, manifest) if leads else "", CheckpointSaveError)
    except CheckpointSaveError:
        if leads:
            manifests.withdraw(scratch, final)
        raise
    return Committed(final, manifest, digests[0])


def hash_own(rank: int, scratch: Path, share: Mapping[str, Tensor]) -> tuple[dict[str, File], dict[str, str]]:
    """(the files that this rank has written, its share of the parameters)"""
    return hash_own_files(rank, scratch), fingerprint.of_share(share, 0, 1)


def hash_own_files(rank: int, scratch: Path) -> dict[str, File]:
    patterns = [f"__{rank}_*"] + ([".metadata"] if rank == 0 else [])
    return {path.name: manifests.describe(path) for pattern in patterns for path in sorted(scratch.glob(pattern))}


def describe_state(vault: Vault, state: TrainState, metrics: dict[str, float], files: dict[str, File], parameters: str) -> Manifest:
    return Manifest(
        job_id=vault.job_id,
        step=state.step,
        generation=vault.generation,
        world_size=vault.group.world_size,
        seed=training_of(vault.spec).seed,
        spec_sha256=hashlib.sha256(vault.spec.model_dump_json().encode()).hexdigest(),
        created=time.time(),
        best=state.best,
        metrics={name: on_the_wire(value) for name, value in metrics.items()},
        parameters_sha256=parameters,
        files=files,
    )


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
    state.step, state.best = manifest.step, manifest.best
