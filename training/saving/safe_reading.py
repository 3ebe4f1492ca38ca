"""A checkpoint is data: reading one runs none of its code and opens none but its own files.

torch keeps a checkpoint's index as a pickle, and small values (learning rates, a schedule's counters) as what `torch.save` makes of them. Either
could name any function to be called. So the index may name only what INDEX_GLOBALS lists, and small values only what
`torch.load(weights_only=True)` takes, numpy's numbers, and classes that the user's own code has given to `torch.serialization.add_safe_globals`.
"""

from __future__ import annotations

import copy
import functools
import importlib
import pickle
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import ReadItem

from paceline.distributed.torch_private import set_element
from paceline.monitoring.file_hashes import File
from paceline.training.errors import CheckpointCorruptError, CheckpointSaveError
from paceline.training.saving import manifest as manifests

INDEX = ".metadata"

#: All that torch's index of a checkpoint is made of, besides plain containers and `torch`'s types of numbers.
INDEX_GLOBALS = frozenset(
    [("torch.distributed.checkpoint.metadata", name) for name in (
        "BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
        "TensorStorageMetadata", "_MEM_FORMAT_ENCODING",
    )]
    + [("torch.distributed.checkpoint.filesystem", "_StorageInfo"), ("torch.serialization", "_get_layout"), ("torch", "Size")]
    + [("pathlib", "PosixPath"), ("pathlib._local", "PosixPath")]
)  # fmt: skip

WAY_OUT = (
    "if you trust it and the class is your own, call torch.serialization.add_safe_globals([CLASS]) in your code before; "
    "numbers, strings and containers of them need nothing"
)


class IndexUnpickler(pickle.Unpickler):
    """Builds the index of a checkpoint, and raises UnpicklingError for whatever else a pickle asks for."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and isinstance(found := vars(torch).get(name), torch.dtype):
            return found
        if (module, name) not in INDEX_GLOBALS:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, and an index of tensors needs nothing of the kind")
        return super().find_class(module, name)


class SafeReader(FileSystemReader):
    """Reads the files that the checkpoint's manifest lists, and no other. Raises CheckpointCorruptError when it is made of what is not one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._index = read_index(folder, manifests.read(folder).files)

    def read_metadata(self) -> Metadata:  # torch asks for an index per rank only where arguments are taken
        return self._index


class SafePlanner(DefaultLoadPlanner):
    """Puts small values into a state, the same bytes being read once: an optimizer says much the same of each parameter."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[bytes, Any] = {}

    def load_bytes(self, read_item: ReadItem, value: BytesIO) -> None:
        name, content = read_item.dest_index.fqn, value.getvalue()
        if content not in self._known:
            self._known[content] = small_value(name, content)
        set_element(self.original_state_dict, self.mappings[name], copy.deepcopy(self._known[content]))


def read_index(folder: Path, listed: Mapping[str, File]) -> Metadata:
    """Read the index of a checkpoint: its tensors, and their places in the files `listed`. Raises CheckpointCorruptError."""
    path = folder / INDEX
    require_listed(folder, INDEX, listed)
    try:
        with open(path, "rb") as file:
            index = IndexUnpickler(file).load()
        places = [place.relative_path for place in index.storage_data.values()]
    except Exception as error:
        raise CheckpointCorruptError(f"{path} is refused: {error}") from error
    if not isinstance(index, Metadata):
        raise CheckpointCorruptError(f"{path} is refused: it holds {type(index).__name__}, which is no index of tensors")
    for name in set(places):
        require_listed(folder, name, listed)
    return index


def require_listed(folder: Path, name: str, listed: Mapping[str, File]) -> None:
    if name not in listed:
        raise CheckpointCorruptError(f"{folder} is refused: it refers to {name}, which is not in its manifest")


def small_value(name: str, content: bytes) -> Any:
    """Unpickle a value that `torch.save` wrote. Raises CheckpointCorruptError, naming the class, for a class that may not be built."""
    allow_numbers_of_numpy()
    try:
        return torch.load(BytesIO(content), map_location="cpu", weights_only=True)
    except Exception as error:  # noqa: BLE001 - as above
        refuse(name, content, error)


def refuse(name: str, content: bytes, cause: Exception) -> NoReturn:
    try:
        asked_for = torch.serialization.get_unsafe_globals_in_checkpoint(BytesIO(content))
    except Exception:  # noqa: BLE001 - it is not even in torch's format
        asked_for = []
    why = f"it refers to {', '.join(sorted(asked_for))}" if asked_for else f"it cannot be read ({str(cause).splitlines()[0]})"
    raise CheckpointCorruptError(f"{name} is refused: {why}; {WAY_OUT}") from cause


def require_readable(name: str, content: BytesIO) -> None:
    """Check, before a value is saved, that it could be loaded again. Raises CheckpointSaveError."""
    try:
        small_value(name, content.getvalue())
    except CheckpointCorruptError as error:
        raise CheckpointSaveError(f"it could not be loaded again: {error}") from error


@functools.cache
def allow_numbers_of_numpy() -> None:
    """A schedule that computes with numpy keeps its numbers. Additive, so safe in any thread."""
    core = importlib.import_module("numpy._core.multiarray")
    makers = [(getattr(core, name), f"numpy.{room}.multiarray.{name}") for name in ("scalar", "_reconstruct") for room in ("core", "_core")]
    kinds = [kind for kind in vars(np.dtypes).values() if isinstance(kind, type) and issubclass(kind, np.dtype)]
    torch.serialization.add_safe_globals([*makers, np.ndarray, np.dtype, *kinds])
