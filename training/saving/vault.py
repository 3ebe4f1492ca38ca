"""Where a job's checkpoints live: the same directory for every rank, or there is no use in saving."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from distributed.errors import GenerationOverError
from distributed.process_group import Group
from monitoring.files import make_folders
from training.errors import CheckpointSaveError, InvalidInputError
from training.saving import manifest as manifests
from training.saving.parts import Division
from training.saving.together import together
from training.spec.job import JobSpec

#: Empty, and there from the first generation on: who is to join later can tell whether it would see what the others save.
SIGN = ".vault"


class Shelf(Protocol):
    """A directory with checkpoints, and the ranks that write to it in one of its generations."""

    @property
    def directory(self) -> Path: ...
    @property
    def generation(self) -> int: ...
    @property
    def group(self) -> Group: ...


@dataclass(frozen=True)
class Vault:
    """Where a job's checkpoints live, who writes them, and which part each."""

    directory: Path
    job_id: str
    generation: int
    spec: JobSpec
    group: Group
    division: Division = field(default_factory=Division)


def open_vault(vault: Shelf, newcomers: Collection[int]) -> None:
    """Create the directory, clear debris, and prove that every rank sees the same one.

    A rank of `newcomers` that does not see it ends alone: InvalidInputError there, GenerationOverError for those who go on without it.
    """
    marker = vault.directory / together(vault.group, lambda: prepare_directory(vault), CheckpointSaveError)[0]
    seen = vault.group.gather(marker.exists())
    if vault.group.rank == 0:
        marker.unlink()
    blind = {rank for rank, sees in enumerate(seen) if not sees}
    if blind and blind <= set(newcomers) and vault.group.rank not in blind:
        raise GenerationOverError(f"rank {min(blind)}, which was to join, does not see checkpoint directory {vault.directory}")
    if blind:
        raise not_the_same(vault.directory, min(blind))


def prepare_directory(vault: Shelf) -> str:
    """The name of an empty file: it takes no space, since a full disk must not keep a job from going on."""
    clear_debris(vault)
    marker = f".visible.g{vault.generation}.{secrets.token_hex(8)}"
    if vault.group.rank == 0:
        make_folders(vault.directory)
        for stale in vault.directory.glob(".visible.*"):  # of a rank that died right here
            stale.unlink(missing_ok=True)
        (vault.directory / marker).touch()
        (vault.directory / SIGN).touch()
    return marker


def clear_debris(vault: Shelf) -> None:
    """What older generations were saving when they broke off."""
    if vault.group.rank == 0:
        manifests.remove_debris(vault.directory, vault.generation)


def require_visible(directory: Path, rank: int) -> None:
    """Before a rank keeps others waiting that train already. Raises InvalidInputError."""
    if not (directory / SIGN).exists():
        raise not_the_same(directory, rank)


def not_the_same(directory: Path, rank: int) -> InvalidInputError:
    return InvalidInputError(
        f"checkpoint directory {directory} is not the same on every node: rank {rank} does not see what rank 0 wrote; set "
        "checkpoint.directory to a path on a shared file system"
    )
