"""A process that does nothing but save: a state that is a function of its step alone, so that a reader can check it."""

from __future__ import annotations

import hashlib
import mmap
import os
import signal
import struct
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import torch
from torch import nn

from paceline.cluster.agent import checkpoints as deletion
from paceline.cluster.protocol import CheckpointToDelete
from paceline.distributed.solo_group import SoloGroup
from paceline.training.data.feed import open_feed
from paceline.training.errors import CheckpointSaveError
from paceline.training.saving import checkpoint
from paceline.training.saving import manifest as manifests
from paceline.training.saving.checkpoint_directory import CheckpointDirectory, open_directory
from paceline.training.saving.manifest import CommittedCheckpoint
from paceline.training.saving.pending_save import PendingSave
from paceline.training.saving.shards import tensors_of
from paceline.training.saving.storage import FolderStorage
from paceline.training.saving.uncommitted import snapshot_state
from paceline.training.saving.writers import BackgroundWriter, BlockingWriter, CheckpointWriter
from paceline.training.spec.job import JobSpec
from paceline.training.state import TrainState
from paceline.training.task import Batch, Task

WIDTH = 192
KEPT = 2
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.001

SPEC = JobSpec.model_validate({"name": "torture", "entrypoint": "torture:task", "training": {"steps": 1_000_000, "global_batch_size": 1}})


class Nothing:
    """Data for a model that is never trained."""

    def __len__(self) -> int:
        return 1

    def batch(self, indices: torch.Tensor, generator: torch.Generator | None) -> Batch:
        raise AssertionError("this model is never trained")


def state_at(step: int) -> TrainState:
    """Model and optimizer filled with numbers that only this step has."""
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH))
    task = Task(model=model, train=Nothing(), loss=lambda _, batch: (batch[0].sum(), {}))
    feed = open_feed(task.train, SPEC)
    state = TrainState(task, torch.optim.AdamW(model.parameters()), torch.device("cpu"), total_steps=1_000_000, feed=feed, step=step)
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator))
    state.optimizer.step()
    state.optimizer.zero_grad()
    return state


def digest(state: TrainState) -> str:
    """Return the SHA-256 of every tensor of the state, by name, and of the step."""
    found = hashlib.sha256(str(state.step).encode())
    for part in tensors_of(state).values():
        for name in sorted(part):
            found.update(name.encode())
            if isinstance(part[name], torch.Tensor):
                found.update(part[name].contiguous().numpy().tobytes())
    return found.hexdigest()


def checkpoints_at(directory: Path, generation: int) -> CheckpointDirectory:
    return CheckpointDirectory(FolderStorage(directory), "torture", generation, SPEC, SoloGroup())


class Journal:
    """Log of a saver, in shared memory that outlives the saver and is written without a system call."""

    _FIELDS = struct.Struct("<QQQQQ")

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(self._FIELDS.size))
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), self._FIELDS.size)

    def _get(self, number: int) -> int:
        return int(self._FIELDS.unpack_from(self._map)[number])

    def _put(self, number: int, value: int) -> None:
        struct.pack_into("<Q", self._map, 8 * number, value)

    ready = property(lambda self: self._get(0), lambda self, value: self._put(0, value))
    go = property(lambda self: self._get(1), lambda self, value: self._put(1, value))
    committed = property(lambda self: self._get(2), lambda self, value: self._put(2, value))
    failed = property(lambda self: self._get(3), lambda self, value: self._put(3, value))
    thread = property(lambda self: self._get(4), lambda self, value: self._put(4, value))  # that writes, by the system's number


def warm_up() -> None:
    """Save once in this process, before savers are forked from it, so that one-time work is done."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        checkpoint.save(checkpoints_at(Path(folder), 1), state_at(1), {})


def save(checkpoints: CheckpointDirectory, state: TrainState, metrics: dict[str, float], writer: CheckpointWriter) -> CommittedCheckpoint:
    """Behind other work the state is lost to that at once."""
    under_way = PendingSave(checkpoints.group, snapshot_state(checkpoints, state, metrics, writer.snapshot), writer)
    if not writer.waits:
        for parameter in state.task.model.parameters():
            parameter.data.zero_()
    while (committed := under_way.advance()) is None:
        pass
    return committed


def be_a_saver(directory: Path, journal: Journal, life: Lifetime) -> None:
    """Wait for `go`, save `saves` steps from `first` on, keep the newest few."""
    generation, first, saves = life.generation, life.first, life.saves
    writer = BackgroundWriter(1, print) if life.behind else BlockingWriter()
    writer.snapshot({})
    journal.thread = writer.submit(threading.get_native_id).result()
    checkpoints, states = checkpoints_at(directory, generation), [state_at(first)]
    open_directory(checkpoints, ())
    folders = newest_first(directory)
    journal.ready = 1
    wait_until(lambda: bool(journal.go), "the order to go")
    for step in range(first, first + saves):
        state = states.pop() if states else state_at(step)
        try:
            save(checkpoints, state, {"loss": 1.0 / step}, writer)
        except CheckpointSaveError:
            journal.failed = step
            continue
        journal.committed = step
        folders.insert(0, directory / manifests.directory_name(step, generation))
        folders = [folder for folder in folders if folder in folders[:KEPT] or not delete(folder)]


def delete(folder: Path) -> bool:
    return deletion.delete(CheckpointToDelete(id=folder.name, directory=str(folder)))


def newest_first(directory: Path) -> list[Path]:
    """Return the checkpoints in `directory`, newest first, judging by names alone."""
    named = ((manifests.NAME.fullmatch(folder.name), folder) for folder in directory.iterdir())
    found = [(int(name["step"]), int(name["generation"]), folder) for name, folder in named if name and not name["debris"]]
    return [folder for _, _, folder in sorted(found, reverse=True)]


@dataclass(frozen=True)
class Lifetime:
    """Work that a saver does until it is struck."""

    generation: int
    first: int
    saves: int
    behind: bool = False  # written by a thread of its own, from copies


class Saver:
    """A saving process, forked from this one, and its journal."""

    def __init__(self, folder: Path, directory: Path, life: Lifetime) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(folder / f"journal.{life.generation}")
        self.pid = os.fork()
        if self.pid == 0:
            self._live(directory, life)
        self._code: int | None = None
        wait_until(lambda: bool(self.journal.ready) or self.has_ended(), "a saver")
        if not self.journal.ready:
            raise RuntimeError(f"a saver ended with exit code {self._code} before it was asked to save")

    def _live(self, directory: Path, life: Lifetime) -> NoReturn:
        try:
            be_a_saver(directory, self.journal, life)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - the border of the process
            traceback.print_exc()
            os._exit(1)

    def go(self) -> None:
        self.journal.go = 1

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def has_ended(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code is not None

    def end(self) -> int:
        """Wait for the saver's end, and return its exit code."""
        wait_until(self.has_ended, "the end of a saver")
        assert self._code is not None
        return self._code


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {WAIT_SECONDS:g} s")
        time.sleep(POLL_SECONDS)
