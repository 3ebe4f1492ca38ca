"""How ranks divide a state among them and write their parts: torch.distributed.checkpoint's files, planned over our own group.

torch's own `save` waits in collectives that no aborter frees: when a rank died in one, the others would sit there until they were
ended. Here each rank plans and writes by itself, with torch's planner and writer, and what ranks must tell each other is
gathered by the group of their generation.
"""

from __future__ import annotations

import contextlib
import operator
import pickle
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from io import BytesIO
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.checkpoint.utils import find_state_dict_object
from torch.distributed.tensor import DTensor

from paceline.distributed.process_group import Group
from paceline.training.errors import CheckpointSaveError, StateChangedError
from paceline.training.saving import fingerprint
from paceline.training.saving.collective_work import run_on_all_ranks
from paceline.training.saving.safe_reading import require_readable
from paceline.training.saving.shards import Tensors
from paceline.training.saving.storage import SaveTarget
from paceline.training.saving.writers import UNCHANGING

#: Before the name of each of the model's tensors, in torch's name for it.
MODEL = "model."


@dataclass(frozen=True)
class RankPart:
    """One rank's part of a state to be written. `data` may be replaced by copies: torch's writer asks for nothing else."""

    plan: SavePlan
    data: Mapping[int, Any]  # by the position of its item in `plan`
    index: Metadata  # of all parts
    writer: FileSystemWriter

    def write(self) -> list[WriteResult]:
        """Write the part; each file is fsynced. Raises CheckpointSaveError."""
        with explaining_errors(self.folder):
            data = {item.index: self.data[position] for position, item in enumerate(self.plan.items)}
            results: list[WriteResult] = self.writer.write_data(self.plan, ReadyDataPlanner(data)).value()
            return results

    def write_index(self, results: list[list[WriteResult]]) -> Path:
        """Write, on rank 0, the index of what all ranks have written. Raises CheckpointSaveError."""
        with explaining_errors(self.folder):
            self.writer.finish(replace(self.index), results)
            return self.folder / ".metadata"

    @property
    def folder(self) -> Path:
        return Path(self.writer.checkpoint_id)


class ReadyDataPlanner(DefaultSavePlanner):
    """A save planner for torch's writer whose data is at hand already."""

    def __init__(self, data: Mapping[MetadataIndex, Any]) -> None:
        super().__init__()
        self._data = data
        self._packed: dict[bytes, BytesIO] = {}

    def resolve_data(self, write_item: WriteItem) -> Tensor | BytesIO:
        value = self._data[write_item.index]
        return value if isinstance(value, Tensor) else self._pack(write_item, value)

    def _pack(self, write_item: WriteItem, value: Any) -> BytesIO:
        """An optimizer says much the same of each parameter, and packing takes a while."""
        content = pickle.dumps(value)
        if content not in self._packed:
            packed: BytesIO = self.transform_object(write_item, value)
            self._require_readable(write_item, value, packed)
            self._packed[content] = packed
        return self._packed[content]

    def _require_readable(self, write_item: WriteItem, value: Any, packed: BytesIO) -> None:
        """Check that a value could be loaded again. Of a dictionary that is saved as one value, in a tuple, the error names the key at fault."""
        name = write_item.index.fqn
        try:
            require_readable(name, packed)
        except CheckpointSaveError:
            if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], dict):
                for key, part in value[0].items():
                    require_readable(f"{name.rpartition('.')[0]}.{key}", self.transform_object(write_item, part))
            raise


@dataclass(frozen=True)
class WritePlan:
    form: object  # of the tensors that it was made for
    mine: SavePlan
    index: Metadata
    paths: Mapping[str, tuple[str | int, ...]]  # into those tensors, by torch's name for each
    owners: Mapping[str, int]  # by the model's name, the rank that hashes it
    has_parts: bool  # some rank holds a part of a tensor

    def data(self, tensors: Tensors) -> dict[int, Any]:
        """Return the values that this rank writes, as they are now, by the position of their items."""
        values = dict[int, Any]()
        for path, keys in self._by_container.items():
            container: Any = reduce(operator.getitem, path, tensors)  # type: ignore[arg-type]
            values.update(zip(keys, map(container.__getitem__, keys.values()), strict=True))
        if not self.has_parts:
            return values
        indices = [item.index for item in self.mine.items]
        return {
            position: find_state_dict_object({indices[position].fqn: value}, indices[position]) if isinstance(value, DTensor) else value
            for position, value in values.items()
        }

    @cached_property
    def _by_container(self) -> dict[tuple[str | int, ...], dict[int, str | int]]:
        """The key of each item's value, by the item's position, by the path to the dictionary or list that has it."""
        found = dict[tuple[str | int, ...], dict[int, str | int]]()
        for position, item in enumerate(self.mine.items):
            *path, key = self.paths[item.index.fqn]
            found.setdefault(tuple(path), {})[position] = key
        return found


class SavePlanner:
    """Plans which rank writes which part of a state. The ranks of a generation plan together, and again only when the layout of the
    state changes."""

    def __init__(self) -> None:
        self._plan: WritePlan | None = None

    @property
    def owners(self) -> Mapping[str, int]:
        """Rank that hashes each tensor of the state planned last, by the tensor's name."""
        assert self._plan is not None, "divide a state first"
        return self._plan.owners

    def part(self, group: Group, tensors: Tensors, target: SaveTarget, *, agree: bool = True) -> RankPart:
        """Return this rank's part of `tensors`, with replicated ones dealt out, to be written into the scratch folder of `target`.

        Collective; raises CheckpointSaveError on all ranks. Without `agree`, a rank that has a plan uses it without asking the others, unless
        tensors are in parts: it raises CheckpointSaveError on this rank alone, StateChangedError where the plan is not for such a state.
        """
        # Nothing ahead: copies are on the host already, and torch would look for a GPU's stream in a thread that has chosen none.
        folder, leads, form = target.scratch, group.rank == 0, layout_of(tensors)
        writer = FileSystemWriter(folder, sync_files=not target.is_remote, per_thread_copy_ahead=0)

        if not agree and self._plan is not None and not self._plan.has_parts:
            return self._known_part(self._plan, tensors, target, form, writer)

        def begin() -> bool:
            writer.set_up_storage_writer(leads)
            target.make_scratch(leads=leads)
            return self._plan is not None and self._plan.form == form

        plan = self._plan
        if not all(run_on_all_ranks(group, explaining_errors(folder)(begin), CheckpointSaveError)) or plan is None:
            plan = self._plan = work_out(group, tensors, writer, form)
        return RankPart(plan.mine, plan.data(tensors), plan.index, writer)

    @staticmethod
    def _known_part(plan: WritePlan, tensors: Tensors, target: SaveTarget, form: object, writer: FileSystemWriter) -> RankPart:
        if plan.form != form:
            raise StateChangedError("model or optimizer have changed their form since the last save")
        with explaining_errors(target.scratch):
            writer.set_up_storage_writer(False)
            target.join_scratch()
        return RankPart(plan.mine, plan.data(tensors), plan.index, writer)


def work_out(group: Group, tensors: Tensors, writer: FileSystemWriter, form: object) -> WritePlan:
    planner = DefaultSavePlanner()

    def own_plan() -> tuple[SavePlan, bool]:
        planner.set_up_planner(tensors, writer.storage_meta(), group.rank == 0)
        return planner.create_local_plan(), any(isinstance(tensor, DTensor) for tensor in tensors["model"].values())

    found = run_on_all_ranks(group, explaining_errors(Path(writer.checkpoint_id))(own_plan), CheckpointSaveError)
    own_plans, are_parts = [plan for plan, _ in found], [has_parts for _, has_parts in found]
    plans, index = planner.create_global_plan(own_plans)  # every rank computes the same
    mine = planner.finish_plan(writer.prepare_global_plan(plans)[group.rank])
    owners = fingerprint.owners([names_in(each) for each in plans])
    return WritePlan(form, mine, index, planner.mappings, owners, any(are_parts))


def names_in(plan: SavePlan) -> set[str]:
    """Return the names of the model's tensors that `plan` writes."""
    return {item.index.fqn.removeprefix(MODEL) for item in plan.items if item.index.fqn.startswith(MODEL)}


def layout_of(value: Any) -> object:
    """Return everything that a plan depends on: states with equal layouts are planned alike."""
    if isinstance(value, Tensor):
        return value.shape, value.dtype
    if not isinstance(value, dict | list | tuple):
        return type(value)
    parts = value.values() if isinstance(value, dict) else value
    # Most are plain, and training waits: their types are collected at once.
    return (
        tuple(value) if isinstance(value, dict) else (),
        tuple(map(type, parts)),
        [layout_of(part) for part in parts if type(part) not in UNCHANGING],
    )


@contextlib.contextmanager
def explaining_errors(folder: Path) -> Iterator[None]:
    """torch says in many types that a file could not be written, and never that the disk is full; any of them costs this save."""
    try:
        yield
    except Exception as error:
        free = shutil.disk_usage(next(each for each in folder.parents if each.exists())).free / 1e6
        raise CheckpointSaveError(f"{folder}: {cause_of(error)}; {free:,.0f} MB are free there") from error


def cause_of(error: BaseException) -> BaseException:
    """The system's word, where torch's is about what it was doing meanwhile ("unexpected pos 704 vs 598")."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError):
        found = found.__cause__ or found.__context__
    return found or error
