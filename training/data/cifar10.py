"""CIFAR-10 (Krizhevsky 2009) from its python-version batches in a folder or fetched once a node, or from a Hugging Face dataset."""

from __future__ import annotations

import importlib
import inspect
import pickle
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from paceline.training.data.digits import Images
from paceline.training.data.fetched import Remote, alone_on_node, fetch_one
from paceline.training.errors import InvalidInputError
from paceline.training.schema.data import Cifar10
from paceline.training.task import Batch

TRAIN_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_FILES = ("test_batch",)
MEAN = (0.4914, 0.4822, 0.4465)
DEVIATION = (0.2470, 0.2435, 0.2616)
PADDING = 4
WAY_OUT = "unpack cifar-10-python.tar.gz there; or, where there is a network, leave data.path out and each node fetches it once, or set data.dataset to a Hugging Face id such as uoft-cs/cifar10"

ARCHIVE = Remote("https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a")
ARCHIVE_FOLDER = "cifar-10-batches-py"
OFFLINE = "set data.path to a folder with its unpacked files, which may be copied to every node"

#: All that the published batches contain besides plain containers: numpy arrays.
ALLOWED_GLOBALS = frozenset(
    (f"numpy{core}.multiarray", name) for core in (".core", "._core", "") for name in ("_reconstruct", "scalar")
) | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}


class AugmentedImages(Images):
    """Training images: shifted by up to four pixels and mirrored, by the generator alone."""

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        images, labels = super().batch(indices, generator)
        return (images if generator is None else augment(images, generator)), labels


class RestrictedUnpickler(pickle.Unpickler):
    """Builds arrays and plain containers, nothing else: a batch file cannot run code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED_GLOBALS:
            raise InvalidInputError(f"refusing to unpickle {module}.{name}: a CIFAR-10 batch holds only arrays")
        return super().find_class(module, name)


def load(data: Cifar10, cache: Path) -> tuple[Images, Images]:
    """Training and held-out images. `cache` holds what this node has fetched. Raises InvalidInputError if there are none to be had."""
    if data.dataset is not None:
        with alone_on_node(cache / "cifar10" / ".lock"):  # the others find what the first has fetched
            train, test = download(data.dataset)
    else:
        folder = Path(data.path) if data.path is not None else published(cache / "cifar10")
        train, test = read_batches(folder, TRAIN_FILES), read_batches(folder, TEST_FILES)
    kind = AugmentedImages if data.augment else Images
    return kind(*to_tensors(*train)), Images(*to_tensors(*test))


def published(cache: Path) -> Path:
    """Return the folder with the published batches, fetched and unpacked if they are not there yet.

    One lock is held over both: another rank that got in between them would find neither the archive nor the folder, and fetch again.
    """
    folder, archive = cache / ARCHIVE_FOLDER, cache / ARCHIVE.name
    if not folder.exists():
        with alone_on_node(cache / ".lock"):
            if not folder.exists():
                if not archive.exists():
                    fetch_one(ARCHIVE, archive, OFFLINE)
                unpack(archive, cache, folder)
    return folder


def unpack(archive: Path, cache: Path, folder: Path) -> None:
    """Write the batches of the published archive to the new `folder`, which gets its name only once all of them are there."""
    with tempfile.TemporaryDirectory(dir=cache) as scratch, tarfile.open(archive) as packed:
        unpacked = Path(scratch) / ARCHIVE_FOLDER
        unpacked.mkdir()
        for name in (*TRAIN_FILES, *TEST_FILES):
            batch = packed.extractfile(f"{ARCHIVE_FOLDER}/{name}")
            assert batch is not None, f"{name} of the published archive is a file"
            (unpacked / name).write_bytes(batch.read())
        unpacked.rename(folder)
    archive.unlink()


Arrays = tuple[np.ndarray[Any, np.dtype[np.uint8]], list[int]]


def read_batches(folder: Path, names: tuple[str, ...]) -> Arrays:
    batches = [read_batch(folder / name) for name in names]
    return np.concatenate([pixels for pixels, _ in batches]), [label for _, labels in batches for label in labels]


def read_batch(path: Path) -> Arrays:
    """Pixels (images, 3, 32, 32) and labels of one file."""
    try:
        with open(path, "rb") as file:
            content = unpickle(path, file)
    except OSError as error:
        raise InvalidInputError(f"no CIFAR-10 batch {path} ({error.strerror}): {WAY_OUT}") from error
    try:
        return content[b"data"].reshape(-1, 3, 32, 32), [int(label) for label in content[b"labels"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidInputError(f"{path} is not a CIFAR-10 python-version batch ({error!r}): {WAY_OUT}") from error


def unpickle(path: Path, file: BinaryIO) -> Any:
    try:
        return RestrictedUnpickler(file, encoding="bytes").load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError) as error:
        raise InvalidInputError(f"{path} is not a readable pickle ({error}): {WAY_OUT}") from error


def download(dataset: str) -> tuple[Arrays, Arrays]:
    try:
        load_dataset = importlib.import_module("datasets").load_dataset  # an extra: installed where it is wanted
    except ImportError as error:
        way_out = "run `pip install 'paceline[hf]'` (or 'datasets>=4') on the nodes, or leave data.dataset out to fetch the published files, or set data.path to a folder with the python-version batches"
        raise InvalidInputError(f"data.dataset={dataset} needs Hugging Face datasets; {way_out}") from error
    try:
        splits = load_dataset(dataset, **without_remote_code(load_dataset))
        return rows(splits["train"]), rows(splits["test"])
    except (OSError, KeyError, ValueError) as error:
        way_out = "check the id and the network, or set data.path to a folder with the python-version batches"
        raise InvalidInputError(f"data.dataset={dataset} cannot be loaded ({error}); {way_out}") from error


def without_remote_code(load_dataset: Callable[..., Any]) -> dict[str, bool]:
    """Versions of `datasets` before 4 would run a script of the data set's own; later ones have no such option, and run none."""
    return {"trust_remote_code": False} if "trust_remote_code" in inspect.signature(load_dataset).parameters else {}


def rows(split: Any) -> Arrays:
    image, label = ("img" if "img" in split.column_names else "image"), "label"
    pixels = np.stack([np.asarray(picture, dtype=np.uint8) for picture in split[image]])
    return pixels.transpose(0, 3, 1, 2), [int(value) for value in split[label]]


def to_tensors(pixels: np.ndarray[Any, np.dtype[np.uint8]], labels: list[int]) -> tuple[Tensor, Tensor]:
    images = torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255
    mean, deviation = (torch.tensor(values).view(1, 3, 1, 1) for values in (MEAN, DEVIATION))
    return (images - mean) / deviation, torch.tensor(labels)


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Mirror each image with probability 1/2, and crop it at random from a border of PADDING zeros."""
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (PADDING,) * 4)
    top, left = torch.randint(0, 2 * PADDING + 1, (2, count), generator=generator)
    mirrored = torch.randint(0, 2, (count, 1), generator=generator).bool()
    across = torch.arange(width).expand(count, width)
    columns = torch.where(mirrored, across.flip(1), across) + left[:, None]
    down = top[:, None] + torch.arange(height)
    batch = torch.arange(count)[:, None, None]
    return padded[batch, :, down[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
