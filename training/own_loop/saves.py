"""Checkpoints of an own loop: the same transactions as a job's, found by looking into their folder, since no coordinator keeps a record of them."""

from __future__ import annotations

import time
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec
import torch
from torch import nn

from paceline.distributed.process_group import Group
from paceline.monitoring.sinks import on_the_wire
from paceline.parallelism.mesh import local_tensor
from paceline.training.errors import CheckpointCorruptError, CheckpointSaveError, InvalidInputError, NoUsableCheckpointError
from paceline.training.optim.loss_guard import LossGuard
from paceline.training.optim.loss_scale import Unscaled
from paceline.training.own_loop.options import Options
from paceline.training.own_loop.recorders import emit
from paceline.training.own_loop.retention import CheckpointRetention, Saved
from paceline.training.saving import checkpoint, shards
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import open_directory
from paceline.training.saving.collective_work import run_on_all_ranks, run_on_each_rank
from paceline.training.saving.manifest import Manifest
from paceline.training.saving.optimizer_names import kept_of
from paceline.training.saving.parts import SavePlanner
from paceline.training.saving.safe_reading import read_index
from paceline.training.saving.storage import FolderStorage
from paceline.training.saving.uncommitted import snapshot_tensors
from paceline.training.saving.writers import BlockingWriter

#: In place of a job's id.
OWN_LOOP = "own-loop"
#: Below the name of a scheduler or a loader: its state, as one value.
STATE = "state_dict"


class Stateful(Protocol):
    """A learning rate schedule of torch, or whatever else keeps small values from step to step."""

    def state_dict(self) -> dict[str, object]: ...
    def load_state_dict(self, state_dict: dict[str, object], /) -> None: ...


@dataclass(frozen=True)
class TrainingObjects:
    """Model, optimizer, and what else an own loop has that counts on, such as a scheduler and a loader: the content of its checkpoints."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    others: Mapping[str, Stateful] = field(default_factory=dict)

    def tensors(self, piecewise: Collection[str] = ()) -> shards.Tensors:
        """Return everything by name. `piecewise`: those of `others` whose state an older checkpoint has value by value.

        torch makes strings of the keys of a dictionary, and loads no more of it than it has already: the state of a scheduler or a loader is in a
        tuple, which torch takes for one value.
        """
        others = {name: other.state_dict() for name, other in self.others.items()}
        return shards.tensors_of(self) | {name: state if name in piecewise else {STATE: (state,)} for name, state in others.items()}

    def tensors_to_save(self) -> shards.Tensors:
        """Return everything by name as it is now, before the first update too.

        To read an optimizer's state, torch makes it by a step with gradients and learning rate zero, which counts: the training that goes on would
        be one step ahead of one that was not saved.
        """
        starts = not self.optimizer.state
        tensors = self.tensors()
        if starts:
            for name in kept_of(tensors["optimizer"]):
                del tensors["optimizer"][name]
            self.optimizer.state.clear()
        return tensors

    def put(self, tensors: shards.Tensors, piecewise: Collection[str] = ()) -> None:
        shards.put_tensors(self, tensors)
        for name, other in self.others.items():
            other.load_state_dict(tensors[name] if name in piecewise else tensors[name][STATE][0])


class OwnCheckpointDirectory:
    """Directory that all ranks see, with one generation of saves in it: nothing is ever overwritten."""

    def __init__(self, directory: Path, group: Group, options: Options, retention: CheckpointRetention) -> None:
        self.storage = FolderStorage(directory)
        self.directory, self.group, self._options, self._retention = directory, group, options, retention
        snapshots, saved = run_on_all_ranks(group, self._look, CheckpointSaveError)[0]
        self._planner = SavePlanner()
        self.generation = 1 + max(snapshots, default=0)
        self._best = next((each.value for each in retention.best_first(saved)), None)
        open_directory(self, ())

    def _look(self) -> tuple[list[int], list[Saved]]:
        return (generations(self.directory), self._retention.saved_in(self.directory)) if self.group.rank == 0 else ([], [])

    def save(
        self,
        training: TrainingObjects,
        step: int,
        scale: Unscaled,
        guard: LossGuard,
        metrics: Mapping[str, float],
        *,
        is_best: bool | None = None,
    ) -> Path:
        """Save the training state, and return its folder; then delete what is not to be kept. Raises CheckpointSaveError on every rank if any
        of them failed, or if this step is already saved. `is_best`: the user's word on it; None: the metric decides.
        """
        final = self.directory / manifests.directory_name(step, self.generation)
        told = self.group.all_gather_object((final.exists(), has_finite_parameters(training.model)))
        if any(exists for exists, _ in told):
            raise CheckpointSaveError(f"{final} is there already: it was saved already; train on first")
        described = self._describe(step, scale, guard, metrics, finite=all(finite for _, finite in told))
        made = snapshot_tensors(
            self.group, self._planner, self.storage.target(final.name), training.tensors_to_save(), described, BlockingWriter().snapshot
        )
        committed = checkpoint.commit(self.group, made).manifest
        if self.group.rank == 0:
            emit("file_saved", {"path": str(final), "bytes": committed.bytes, "step": step, "time": committed.created})
        self._best = described.best
        run_on_all_ranks(self.group, lambda: self._keep_within(final, is_best), CheckpointSaveError)
        return final

    def _keep_within(self, newest: Path, is_best: bool | None) -> None:
        if self.group.rank == 0:
            self._retention.apply(self.directory, newest, is_best=is_best)

    def load_newest(self, training: TrainingObjects) -> Manifest | None:
        """Load the newest checkpoint that verifies; None if there is no checkpoint. Raises NoUsableCheckpointError if all are damaged."""
        found = run_on_all_ranks(self.group, lambda: newest_first(self.directory) if self.group.rank == 0 else [], CheckpointCorruptError)[
            0
        ]
        for folder in found:
            try:
                manifest = load(training, folder, self.group)
                if manifest.finite is False and self.group.rank == 0:
                    warnings.warn(self._not_finite(folder), stacklevel=3)
                return manifest
            except CheckpointCorruptError as error:
                if self.group.rank == 0:
                    warnings.warn(f"checkpoint {folder.name} is damaged, trying an older one: {error}", stacklevel=3)
        if found:
            tried = ", ".join(folder.name for folder in found)
            raise NoUsableCheckpointError(
                f"no checkpoint in {self.directory} can be used: tried {tried}; give another directory to start anew"
            )
        return None

    def _not_finite(self, loaded: Path) -> str:
        finite = [each for each in self._retention.saved_in(self.directory) if each.finite]
        newest = max(finite, key=lambda each: each.age, default=None)
        instead = "delete it to start anew" if newest is None else f"to go back, load {self.directory / newest.name}"
        return f"checkpoint {loaded.name} has parameters that are NaN or infinite, from which no training recovers; {instead}"

    def _describe(self, step: int, scale: Unscaled, guard: LossGuard, metrics: Mapping[str, float], *, finite: bool) -> Manifest:
        described = Manifest(
            job_id=OWN_LOOP,
            step=step,
            generation=self.generation,
            world_size=self.group.world_size,
            seed=self._options.seed,
            spec_sha256=self._options.sha256,
            created=time.time(),
            best=None,
            loss_scale=scale.saved,
            loss_guard=guard,
            finite=finite,
            metrics={name: on_the_wire(value) for name, value in metrics.items()},
            files={},
        )
        return msgspec.structs.replace(described, best=self._retention.better(self._best, self._retention.value_in(described)))


def load(training: TrainingObjects, folder: Path, group: Group) -> Manifest:
    """Load the checkpoint into `training`, and return its manifest. Collective. Raises CheckpointCorruptError on every rank."""
    folder = folder.resolve()  # `best` is a link to one
    manifest = checkpoint.verify(group, folder)
    saved = run_on_each_rank(group, lambda: names_in(folder, manifest), CheckpointCorruptError)
    training.optimizer.zero_grad()  # an update under way is dropped; with its gradients torch would not make the state to be read into
    piecewise = {name for name in training.others if f"{name}.{STATE}" not in saved}
    tensors = training.tensors(piecewise)
    run_on_all_ranks(group, lambda: shards.read(tensors, folder), CheckpointCorruptError)
    training.put(tensors, piecewise)
    return manifest


def has_finite_parameters(model: nn.Module) -> bool:
    """Return whether no trained parameter of this rank's part of the model is NaN or infinite."""
    return all(bool(local_tensor(each.detach()).isfinite().all()) for each in model.parameters() if each.requires_grad)


def names_in(folder: Path, manifest: Manifest) -> set[str]:
    """Return the names of all values in a checkpoint. Raises CheckpointCorruptError."""
    return set(read_index(folder, manifest.files).state_dict_metadata)


def generations(directory: Path) -> list[int]:
    """Return the generation of each save in `directory`, finished or not."""
    names = (manifests.NAME.fullmatch(folder.name) for folder in directory.glob("step-*"))
    return [int(name["generation"]) for name in names if name is not None]


def newest_first(directory: Path) -> list[Path]:
    """Published checkpoints, those of the latest generation first: what was saved before going back to an earlier step is older, whatever its step."""
    names = (manifests.NAME.fullmatch(folder.name) for folder in directory.glob("step-*"))
    found = [(int(name["generation"]), int(name["step"])) for name in names if name is not None and not name["debris"]]
    return [directory / manifests.directory_name(step, generation) for generation, step in sorted(found, reverse=True)]


def require_directory(directory: Path | None) -> Path:
    """Return `directory`. Raises InvalidInputError if the Trainer was given none."""
    if directory is None:
        raise InvalidInputError("this Trainer has no checkpoint_dir; give Trainer(..., checkpoint_dir=FOLDER), one that every rank sees")
    return directory
