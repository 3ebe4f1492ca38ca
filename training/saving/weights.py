"""A model's weights as safetensors, laid out as Hugging Face does: one `model.safetensors`, or several with an index that says which
tensor is in which. Names and types are those of the model; tensors that it holds under several names are there once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from paceline.distributed.process_group import Group
from paceline.monitoring.files import write_durably
from paceline.parallelism.mesh import local_tensor
from paceline.training.errors import InvalidInputError
from paceline.training.saving.assembly import Region, place_of
from paceline.training.saving.collective_work import run_on_all_ranks
from paceline.training.saving.manifest import FILE
from paceline.training.saving.tensor_files import write_tensors
from paceline.training.saving.tied import aliases

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def file_name(number: int, files: int) -> str:
    """Return the name of file `number` (from 1) of `files`."""
    return SINGLE if files == 1 else f"model-{number:05}-of-{files:05}.safetensors"


def cut(sizes: Mapping[str, int], limit: int) -> list[list[str]]:
    """Names in their order, in runs of at most `limit` bytes; what is larger by itself is in a run of its own."""
    runs: list[list[str]] = []
    filled = 0
    for name, size in sizes.items():
        if not runs or filled + size > limit:
            runs.append([])
            filled = 0
        runs[-1].append(name)
        filled += size
    return runs


def write_file(path: Path, tensors: Mapping[str, Tensor], notes: Mapping[str, str]) -> None:
    """`format` tells readers that these are torch's."""
    write_tensors(path, tensors, {"format": "pt", **notes})


def write_index(folder: Path, files: Mapping[str, str], total_bytes: int) -> None:
    """`files`: of each tensor."""
    content = {"metadata": {"total_size": total_bytes}, "weight_map": dict(files)}
    write_durably(folder / INDEX, json.dumps(content, indent=2).encode())


@dataclass(frozen=True)
class Weights:
    """Index of the weights in a folder: the file and the shape of each tensor, by name."""

    path: Path
    files: Mapping[str, Path]
    shapes: Mapping[str, tuple[int, ...]]

    def read(self, name: str, part: Region | None = None) -> Tensor:
        """Read a tensor, whole or in part."""
        with opened(self.files[name]) as file:
            tensor: Tensor = file.get_tensor(name) if part is None or not part.shape else file.get_slice(name)[part.slices]
        return tensor


def find_weights(path: Path) -> Weights:
    """A file, or a folder with one or an index. Raises InvalidInputError where something is missing or damaged."""
    files: dict[str, Path] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for file in files_in(path):
        with opened(file) as content:
            for name in content.keys():  # noqa: SIM118 - it is no mapping
                files[name], shapes[name] = file, tuple(content.get_slice(name).get_shape())
    return Weights(path, files, shapes)


def files_in(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (path / INDEX).is_file():
        try:
            names = set(json.loads((path / INDEX).read_bytes())["weight_map"].values())
            return sorted(path / plain(name) for name in names)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise InvalidInputError(f"{path / INDEX} is no index of safetensors: {error!r}; export the weights again") from error
    if (path / SINGLE).is_file():
        return [path / SINGLE]
    raise InvalidInputError(f"{path} is no file of safetensors, and no folder with {SINGLE} or {INDEX}; 'paceline export' makes one")


def plain(name: str) -> str:
    """A file of the index's own folder, as Hugging Face writes it; there it may be a link, as in its cache."""
    if not FILE.fullmatch(name):
        raise InvalidInputError(f"{INDEX} names {name!r}, which is not the name of a file in that folder; export the weights again")
    return name


def opened(file: Path) -> Any:
    """A context with its tensors."""
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        raise InvalidInputError(f"{file} cannot be read as safetensors: {error}") from error


def load_initial(model: nn.Module, path: Path, group: Group) -> None:
    """Give `model` the weights at `path`, whatever plan it is cut by; each rank reads only its part. All ranks together: InvalidInputError on
    every one where the names or shapes do not fit, naming the first that differ."""
    own = tensors_of(model)
    shapes = {name: tuple(tensor.shape) for name, tensor in own.items()}
    everyone = {
        name: shape for held in group.all_gather_object(shapes) for name, shape in held.items()
    }  # of pipelines each rank holds some

    def load() -> None:
        weights = find_weights(path)
        sources = sources_of(own, aliases(model), weights)
        require_fit(weights, everyone, {name: sources.get(name) for name in own})
        put(own, weights, sources)

    run_on_all_ranks(group, load, InvalidInputError)


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and those buffers that are saved, sharing their memory."""
    return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}


def sources_of(own: Iterable[str], first: Mapping[str, str], weights: Weights) -> dict[str, str]:
    """Return the name under which the weights hold each tensor: its own, or for a tied one another; `first` gives the first name of
    each."""
    held = {first.get(name, name): name for name in weights.files}
    return {name: name if name in weights.files else held[first.get(name, name)] for name in own if first.get(name, name) in held}


def require_fit(weights: Weights, shapes: Mapping[str, tuple[int, ...]], sources: Mapping[str, str | None]) -> None:
    """`shapes`: of the whole model; `sources`: of what this rank holds."""
    misfit = next(misfits(weights, shapes, sources), None)
    if misfit is not None:
        raise InvalidInputError(
            f"the weights in {weights.path} are not of this model: {misfit}; give those of the same model, or leave initial_weights out"
        )


def misfits(weights: Weights, shapes: Mapping[str, tuple[int, ...]], sources: Mapping[str, str | None]) -> Iterator[str]:
    for name, source in sources.items():
        if source is None:
            yield f"{name} is missing there"
        elif weights.shapes[source] != shapes[name]:
            yield f"{name} has shape {list(weights.shapes[source])} there and {list(shapes[name])} in the model"
    yield from (f"{name} is there and not in the model" for name in weights.files if name not in shapes)


@torch.no_grad()
def put(own: Mapping[str, Tensor], weights: Weights, sources: Mapping[str, str]) -> None:
    for name, tensor in own.items():
        part = place_of(tensor) if isinstance(tensor, DTensor) else None
        if part is None or 0 not in part.shape:
            local_tensor(tensor).copy_(weights.read(sources[name], part))
