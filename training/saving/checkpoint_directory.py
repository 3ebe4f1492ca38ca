"""Where a job's checkpoints live: the same directory for every rank, or there is no use in saving."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from paceline.distributed.errors import GenerationOverError
from paceline.distributed.process_group import Group
from paceline.monitoring.files import make_folders
from paceline.training.errors import CheckpointSaveError, InvalidInputError
from paceline.training.saving import manifest as manifests
from paceline.training.saving.collective_work import run_on_all_ranks
from paceline.training.saving.parts import SavePlanner
from paceline.training.spec.job import JobSpec

#: Empty, and there from the first generation on: a rank that joins later can tell whether it sees what the others save.
SIGN = ".vault"


class CheckpointLocation(Protocol):
    """A directory of checkpoints, and the ranks that write to it in one generation."""

    @property
    def directory(self) -> Path: ...
    @property
    def generation(self) -> int: ...
    @property
    def group(self) -> Group: ...


@dataclass(frozen=True)
class CheckpointDirectory:
    """Directory of a job's checkpoints, with the group that writes them and the planner of each rank's part."""

    directory: Path
    job_id: str
    generation: int
    spec: JobSpec
    group: Group
    planner: SavePlanner = field(default_factory=SavePlanner)


def open_directory(checkpoints: CheckpointLocation, newcomers: Collection[int]) -> None:
    """Create the directory, clear debris, and prove that every rank sees the same one.

    A rank of `newcomers` that does not see it ends alone: InvalidInputError there, GenerationOverError on the ranks that go on without it.
    """
    marker = checkpoints.directory / run_on_all_ranks(checkpoints.group, lambda: prepare_directory(checkpoints), CheckpointSaveError)[0]
    seen = checkpoints.group.all_gather_object(marker.exists())
    if checkpoints.group.rank == 0:
        marker.unlink()
    blind = {rank for rank, sees in enumerate(seen) if not sees}
    if blind and blind <= set(newcomers) and checkpoints.group.rank not in blind:
        raise GenerationOverError(f"rank {min(blind)}, which was to join, does not see checkpoint directory {checkpoints.directory}")
    if blind:
        raise not_the_same(checkpoints.directory, min(blind))


def prepare_directory(checkpoints: CheckpointLocation) -> str:
    """Create the directory and return the name of an empty marker file in it. An empty file takes no space: a full disk must not stop a
    job."""
    clear_debris(checkpoints)
    marker = f".visible.g{checkpoints.generation}.{secrets.token_hex(8)}"
    if checkpoints.group.rank == 0:
        make_folders(checkpoints.directory)
        for stale in checkpoints.directory.glob(".visible.*"):  # of a rank that died right here
            stale.unlink(missing_ok=True)
        (checkpoints.directory / marker).touch()
        (checkpoints.directory / SIGN).touch()
    return marker


def clear_debris(checkpoints: CheckpointLocation) -> None:
    """Remove unfinished saves of older generations."""
    if checkpoints.group.rank == 0:
        manifests.remove_debris(checkpoints.directory, checkpoints.generation)


def require_visible(directory: Path, rank: int) -> None:
    """Check that this node sees the directory, before a rank joins others that train. Raises InvalidInputError."""
    if not (directory / SIGN).exists():
        raise not_the_same(directory, rank)


def not_the_same(directory: Path, rank: int) -> InvalidInputError:
    return InvalidInputError(
        f"checkpoint directory {directory} is not the same on every node: rank {rank} does not see what rank 0 wrote; set "
        "checkpoint.directory to a path on a shared file system"
    )
