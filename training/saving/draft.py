"""One rank's share of a checkpoint to be: taken from the state by all ranks together, written by any thread and without the others."""

from __future__ import annotations

import hashlib
import pickle
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
from torch import Tensor
from torch.distributed.checkpoint.storage import WriteResult

from distributed.process_group import Group
from monitoring.sinks import on_the_wire
from training.errors import CheckpointSaveError
from training.saving import fingerprint
from training.saving import manifest as manifests
from training.saving.assembly import whole_tensors
from training.saving.manifest import Committed, File, Manifest
from training.saving.parts import Division, Part, saying_why
from training.saving.shards import Tensors, tensors_of
from training.saving.together import each_by_itself
from training.saving.vault import Vault
from training.saving.writers import Values
from training.state import TrainState, training_of


class Written(NamedTuple):
    """What one rank has put down."""

    results: list[WriteResult]
    files: dict[str, File]
    parameters: dict[str, str]  # hashes by name, of its share


class Receipt(NamedTuple):
    """The same for rank 0 to read: nobody else's training thread has to take it apart."""

    written: bytes
    seconds: float  # that it took


@dataclass(frozen=True)
class Draft:
    rank: int
    final: Path
    scratch: Path
    manifest: Manifest  # but for what is known only when everyone has written
    part: Part
    share: Mapping[str, Tensor]  # parameters and buffers that this rank hashes, whole

    def write(self) -> Receipt:
        """This rank's files, fsynced and hashed. Raises CheckpointSaveError, or what the system refused."""
        started = time.monotonic()
        results = self.part.write()
        files = {path.name: manifests.describe(path) for path in sorted(self.scratch.glob(f"__{self.rank}_*"))}
        parameters = {name: fingerprint.of_tensor(tensor) for name, tensor in self.share.items()}
        return Receipt(pickle.dumps(Written(results, files, parameters)), time.monotonic() - started)

    def publish(self, receipts: Sequence[Receipt]) -> Committed:
        """By rank 0, when every rank has written: index, manifest, rename. Raises as `write`."""
        written: list[Written] = [pickle.loads(receipt.written) for receipt in receipts]
        index = self.part.write_index([each.results for each in written])
        files = {name: file for each in written for name, file in each.files.items()}
        parameters = fingerprint.combined(each.parameters for each in written)
        files[index.name] = manifests.describe(index)
        manifest = msgspec.structs.replace(self.manifest, files=files, parameters_sha256=parameters)
        return Committed(self.final, manifest, manifests.publish(self.scratch, self.final, manifest))

    def withdraw(self) -> None:
        """When it has failed, and nobody writes any more."""
        if self.rank == 0:
            manifests.withdraw(self.scratch, self.final)


def draft(vault: Vault, state: TrainState, metrics: dict[str, float], take: Callable[[Values], Values]) -> Draft:
    """Of a job's state; see `draft_of`."""
    final = vault.directory / manifests.directory_name(state.step, vault.generation)
    return draft_of(vault.group, vault.division, final, tensors_of(state), describe_state(vault, state, metrics), take)


def draft_of(
    group: Group, division: Division, final: Path, tensors: Tensors, manifest: Manifest, take: Callable[[Values], Values]
) -> Draft:
    """By all ranks together; `take` keeps what is to be written, until it is. `manifest` is complete but for what that comes to. Raises
    CheckpointSaveError on every rank if it fails on any."""
    scratch = final.with_name(f"{final.name}{manifests.SCRATCH}")
    try:
        part = division.part(group, tensors, scratch)
        share = whole_tensors(tensors["model"], division.owners, group)
        taken = each_by_itself(group, saying_why(scratch)(lambda: take({**part.data, **share})), CheckpointSaveError)
    except CheckpointSaveError:
        if group.rank == 0:
            manifests.withdraw(scratch, final)
        raise
    part = replace(part, data={index: taken[index] for index in part.data})
    return Draft(group.rank, final, scratch, manifest, part, {name: taken[name] for name in share})


def describe_state(vault: Vault, state: TrainState, metrics: dict[str, float]) -> Manifest:
    return Manifest(
        job_id=vault.job_id,
        step=state.step,
        generation=vault.generation,
        world_size=vault.group.world_size,
        seed=training_of(vault.spec).seed,
        spec_sha256=hashlib.sha256(vault.spec.model_dump_json().encode()).hexdigest(),
        created=time.time(),
        best=state.best,
        loss_scale=state.scale.saved,
        metrics={name: on_the_wire(value) for name, value in metrics.items()},
        files={},
    )
