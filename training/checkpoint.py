"""Checkpoints are transactions: torch.distributed.checkpoint into a scratch directory, hashes, manifest, rename.

Whatever kills a rank at whatever byte leaves either a whole checkpoint or debris that is never mistaken for one. All ranks call
`save` and `restore` together; each phase ends with everyone's outcome known to everyone, so that they fail together too.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import shutil
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.state_dict_saver import save as save_tensors

from distributed.process_group import Group
from monitoring.sinks import on_the_wire
from training import manifest as manifests
from training.errors import CheckpointCorruptError, CheckpointSaveError, InvalidInputError
from training.manifest import File, Manifest
from training.spec import JobSpec
from training.state import TrainState, training_of

T = TypeVar("T")

OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


@dataclass(frozen=True)
class Vault:
    """Where a job's checkpoints live, and who writes them."""

    directory: Path
    job_id: str
    generation: int
    spec: JobSpec
    group: Group


@dataclass(frozen=True)
class Committed:
    directory: Path
    manifest: Manifest
    manifest_sha256: str


def open_vault(vault: Vault) -> None:
    """Create the directory, clear debris, and prove that every rank sees the same one."""
    marker = vault.directory / f".visible.g{vault.generation}"
    together(vault.group, lambda: prepare_directory(vault, marker), CheckpointSaveError)
    expected = vault.group.gather(marker.read_text() if vault.group.rank == 0 else None)[0]
    seen = vault.group.gather(marker.is_file() and marker.read_text() == expected)
    if vault.group.rank == 0:
        marker.unlink()
    if not all(seen):
        raise InvalidInputError(
            f"checkpoint directory {vault.directory} is not the same on every node: rank {seen.index(False)} does not see what "
            "rank 0 wrote; set checkpoint.directory to a path on a shared file system"
        )


def prepare_directory(vault: Vault, marker: Path) -> None:
    clear_debris(vault)
    if vault.group.rank == 0:
        vault.directory.mkdir(parents=True, exist_ok=True)
        marker.write_text(secrets.token_hex(8))


def clear_debris(vault: Vault) -> None:
    """What older generations were saving when they broke off."""
    if vault.group.rank == 0:
        manifests.remove_debris(vault.directory, vault.generation)


def save(vault: Vault, state: TrainState, metrics: dict[str, float]) -> Committed:
    """Write, hash and publish the state. Raises CheckpointSaveError on every rank if any of them failed."""
    name = manifests.directory_name(state.step, vault.generation)
    final, scratch = vault.directory / name, vault.directory / f"{name}.tmp"
    together(vault.group, lambda: make_scratch(vault.group, scratch), CheckpointSaveError)
    try:
        write_shards(vault.group, state, scratch)
        files = together(vault.group, lambda: hash_own_files(vault.group.rank, scratch), CheckpointSaveError)
        everything = {name: file for part in vault.group.gather(files) for name, file in part.items()}
        manifest = describe_state(vault, state, metrics, everything)
        digest = together(vault.group, lambda: publish(vault.group, scratch, final, manifest), CheckpointSaveError)
    except CheckpointSaveError:
        if vault.group.rank == 0:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    return Committed(final, manifest, digest)


def make_scratch(group: Group, scratch: Path) -> None:
    if group.rank == 0:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()


def write_shards(group: Group, state: TrainState, scratch: Path) -> None:
    """Replicated tensors are dealt out, so that each rank writes a part; every file is fsynced."""
    writer = FileSystemWriter(scratch, sync_files=True)
    try:
        with quiet_when_alone():
            save_tensors(tensors_of(state), storage_writer=writer, process_group=group.process_group(), no_dist=group.world_size == 1)
    except (CheckpointException, OSError) as error:
        free = shutil.disk_usage(scratch.parent).free / 1e6  # torch does not say so when a disk is full
        raise CheckpointSaveError(f"{scratch}: {first_cause(error)}; {free:,.0f} MB are free there") from error


def first_cause(error: CheckpointException | OSError) -> str:
    """The failing rank's own words, not the wrapping's."""
    if isinstance(error, CheckpointException):
        return "; ".join(f"rank {rank}: {cause}" for rank, (cause, _) in sorted(error.failures.items()))
    return str(error)


def hash_own_files(rank: int, scratch: Path) -> dict[str, File]:
    patterns = [f"__{rank}_*"] + ([".metadata"] if rank == 0 else [])
    return {path.name: manifests.describe(path) for pattern in patterns for path in sorted(scratch.glob(pattern))}


def describe_state(vault: Vault, state: TrainState, metrics: dict[str, float], files: dict[str, File]) -> Manifest:
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
        files=files,
    )


def publish(group: Group, scratch: Path, final: Path, manifest: Manifest) -> str:
    if group.rank != 0:
        return ""
    digest = manifests.write(scratch, manifest)
    manifests.publish(scratch, final)
    return digest


def verify(group: Group, folder: Path) -> Manifest:
    """Check every hash, each rank a part of the files. Raises CheckpointCorruptError on every rank if any is wrong."""

    def check() -> Manifest:
        manifest = manifests.read(folder)
        manifests.verify(folder, manifest, sorted(manifest.files)[group.rank :: group.world_size])
        return manifest

    return together(group, check, CheckpointCorruptError)


def load(group: Group, state: TrainState, folder: Path, manifest: Manifest) -> None:
    """Put a verified checkpoint into `state`, whatever world wrote it."""
    tensors = tensors_of(state)
    reader = FileSystemReader(folder)
    try:
        with quiet_when_alone():
            load_tensors(tensors, storage_reader=reader, process_group=group.process_group(), no_dist=group.world_size == 1)
    except CheckpointException as error:
        raise InvalidInputError(f"{folder} does not fit this job's model and optimizer: {first_cause(error)}") from error
    put_tensors(state, tensors)
    state.step, state.best = manifest.step, manifest.best


@contextlib.contextmanager
def quiet_when_alone() -> Iterator[None]:
    """torch warns that a single process saves as a single process, even when told to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable)")
        yield


def tensors_of(state: TrainState) -> dict[str, Any]:
    """Model and optimizer by parameter name, so that any plan can load them."""
    model, optimizer = get_state_dict(state.task.model, state.optimizer, options=OPTIONS)
    return {"model": model, "optimizer": optimizer}


def put_tensors(state: TrainState, tensors: dict[str, Any]) -> None:
    """The other way round."""
    set_state_dict(
        state.task.model,
        state.optimizer,
        model_state_dict=tensors["model"],
        optim_state_dict=tensors["optimizer"],
        options=OPTIONS,
    )


def together(group: Group, work: Callable[[], T], failure: type[Exception]) -> T:
    """Do local work, then compare notes: if it failed anywhere, everyone raises `failure` with the first rank's reason."""
    reason, result = None, None
    try:
        result = work()
    except (OSError, failure) as error:
        reason = f"rank {group.rank}: {error}" if group.world_size > 1 else str(error)
    reasons = [reason for reason in group.gather(reason) if reason is not None]
    if reasons:
        raise failure(reasons[0])
    return result  # type: ignore[return-value]
