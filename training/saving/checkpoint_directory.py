"""Where a job's checkpoints live: the same directory for every rank, or there is no use in saving."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Protocol

from paceline.distributed.errors import GenerationOverError
from paceline.distributed.process_group import Group
from paceline.objects.location import ObjectLocation, Place, place_at
from paceline.training.errors import CheckpointSaveError, InvalidInputError
from paceline.training.saving.collective_work import run_on_all_ranks
from paceline.training.saving.object_storage import ObjectStorage
from paceline.training.saving.parts import SavePlanner
from paceline.training.saving.state_index import StateIndex
from paceline.training.saving.storage import SIGN, VISIBLE, CheckpointStorage, FolderStorage
from paceline.training.spec.job import JobSpec


class CheckpointLocation(Protocol):
    """A place of checkpoints, and the ranks that write to it in one generation."""

    @property
    def storage(self) -> CheckpointStorage: ...
    @property
    def generation(self) -> int: ...
    @property
    def group(self) -> Group: ...


@dataclass(frozen=True)
class CheckpointDirectory:
    """Place of a job's checkpoints, with the group that writes them, the planner of each rank's part, and the names of the state."""

    storage: CheckpointStorage
    job_id: str
    generation: int
    spec: JobSpec
    group: Group
    planner: SavePlanner = field(default_factory=SavePlanner)
    index: StateIndex = field(default_factory=StateIndex)

    @cached_property
    def spec_sha256(self) -> str:
        return hashlib.sha256(self.spec.model_dump_json().encode()).hexdigest()


def storage_at(directory: str, options: Mapping[str, str], staging: Path, generation: int = 0, rank: int = 0) -> CheckpointStorage:
    """The storage that `directory`, a path or a URL, names. `staging` is the job's folder on this node for what goes to an object store or
    comes from it. Raises InvalidInputError for a URL that cannot be used."""
    try:
        place = place_at(directory)
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    if isinstance(place, Path):
        return FolderStorage(place)
    return ObjectStorage(place, options, staging, generation, rank)


def open_directory(checkpoints: CheckpointLocation, newcomers: Collection[int]) -> None:
    """Create the directory, clear debris, and prove that every rank sees the same one and can write there.

    A rank of `newcomers` that does not see it ends alone: InvalidInputError there, GenerationOverError on the ranks that go on without it.
    """
    storage, group = checkpoints.storage, checkpoints.group
    marker = run_on_all_ranks(group, lambda: prepare_directory(checkpoints), CheckpointSaveError)[0]
    seen = run_on_all_ranks(group, lambda: storage.has(marker), CheckpointSaveError)
    if group.rank == 0:
        storage.remove_note(marker)
    blind = {rank for rank, sees in enumerate(seen) if not sees}
    if blind and blind <= set(newcomers) and group.rank not in blind:
        raise GenerationOverError(f"rank {min(blind)}, which was to join, does not see checkpoint directory {storage.place}")
    if blind:
        raise not_the_same(storage.place, min(blind))


def prepare_directory(checkpoints: CheckpointLocation) -> str:
    """Make the place ready, and return the name of an empty marker in it, which is rank 0's to make."""
    rank = checkpoints.group.rank
    marker = f"{VISIBLE}.g{checkpoints.generation}.{secrets.token_hex(8)}"
    checkpoints.storage.require_writable(rank)
    clear_debris(checkpoints)
    if rank == 0:
        checkpoints.storage.prepare(marker)
    return marker


def clear_debris(checkpoints: CheckpointLocation) -> None:
    """Remove unfinished saves of older generations."""
    checkpoints.storage.remove_debris(checkpoints.generation, leads=checkpoints.group.rank == 0)


def require_visible(storage: CheckpointStorage, rank: int) -> None:
    """Check that this node sees the directory, before a rank joins others that train. Raises InvalidInputError."""
    if not storage.has(SIGN):
        raise not_the_same(storage.place, rank)


def not_the_same(place: Place, rank: int) -> InvalidInputError:
    way_out = (
        "let the nodes use one store: the same checkpoint.options, AWS_ENDPOINT_URL and credentials on each"
        if isinstance(place, ObjectLocation)
        else "set checkpoint.directory to a path on a shared file system, or to an object store (s3://BUCKET/PREFIX)"
    )
    return InvalidInputError(
        f"checkpoint directory {place} is not the same on every node: rank {rank} does not see what rank 0 wrote; {way_out}"
    )
