"""The tensors of a state as torch.distributed.checkpoint's files, planned and written over our own group.

torch's own `save` waits in collectives that no fence frees: when a rank died in one, the others would sit there until they were
ended. Here each rank plans and writes by itself, with torch's planner and writer, and what ranks must tell each other is
gathered by the group of their generation. Loading needs nobody else.
"""

from __future__ import annotations

import contextlib
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_tensors
from torch.distributed.checkpoint.storage import WriteResult

from distributed.process_group import Group
from training.errors import CheckpointCorruptError, CheckpointSaveError, InvalidInputError
from training.state import TrainState
from training.tied import with_aliases, without_aliases
from training.together import together

T = TypeVar("T")
Tensors = dict[str, Any]

OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)


def write(group: Group, tensors: Tensors, folder: Path) -> None:
    """Into an empty folder, each file fsynced: this rank's part of `tensors`, replicated ones dealt out, and by rank 0 the index."""
    planner, writer, leads = DefaultSavePlanner(), FileSystemWriter(folder, sync_files=True), group.rank == 0

    def plan() -> SavePlan:
        planner.set_up_planner(tensors, writer.storage_meta(), leads)
        writer.set_up_storage_writer(leads)
        return writer.prepare_local_plan(planner.create_local_plan())

    plans, index = planner.create_global_plan(savingly(group, folder, plan))  # everyone works out the same
    mine = writer.prepare_global_plan(plans)[group.rank]

    def write_part() -> list[WriteResult]:
        results: list[WriteResult] = writer.write_data(planner.finish_plan(mine), planner).value()
        return results

    results = savingly(group, folder, write_part)
    savingly(group, folder, lambda: writer.finish(index, results) if leads else None)


def savingly(group: Group, folder: Path, work: Callable[[], T]) -> list[T]:
    """torch says in many types that a file could not be written, and never that the disk is full; any of them costs this save."""

    def attempt() -> T:
        try:
            return work()
        except Exception as error:
            free = shutil.disk_usage(folder.parent).free / 1e6
            raise CheckpointSaveError(f"{folder}: {cause_of(error)}; {free:,.0f} MB are free there") from error

    return together(group, attempt, CheckpointSaveError)


def cause_of(error: BaseException) -> BaseException:
    """The system's word, where torch's is about what it was doing meanwhile ("unexpected pos 704 vs 598")."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__ or found.__context__
    return found or error


def read(tensors: Tensors, folder: Path) -> None:
    """This rank's part of `tensors`, in place, whatever world wrote them. Where it fails, some of them are overwritten."""
    try:
        with quiet_when_alone():
            load_tensors(tensors, storage_reader=FileSystemReader(folder), no_dist=True)
    except CheckpointException as error:
        cause = next(cause for cause, _ in error.failures.values())
        if isinstance(cause, OSError):
            raise CheckpointCorruptError(f"{folder}: {cause}") from error
        raise InvalidInputError(f"{folder} does not fit this job's model and optimizer: {cause}") from error


@contextlib.contextmanager
def quiet_when_alone() -> Iterator[None]:
    """torch warns that a process loads by itself, even when told to."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable)")
        yield


def tensors_of(state: TrainState) -> Tensors:
    """Model and optimizer by parameter name, so that any plan can load them. Tied parameters are there once, by their first name."""
    model, optimizer = get_state_dict(state.task.model, state.optimizer, options=OPTIONS)
    return {"model": without_aliases(model, state.task.model), "optimizer": optimizer}


def put_tensors(state: TrainState, tensors: Tensors) -> None:
    """The other way round."""
    set_state_dict(
        state.task.model,
        state.optimizer,
        model_state_dict=with_aliases(tensors["model"], state.task.model),
        optim_state_dict=tensors["optimizer"],
        options=OPTIONS,
    )
