"""MNIST (LeCun, Cortes, Burges 1998): 70,000 handwritten digits of 28x28 pixels, from its four files in a folder, or fetched once a node."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.training.data import digits
from paceline.training.data.digits import Images
from paceline.training.data.fetched import Remote, fetch
from paceline.training.errors import InvalidInputError
from paceline.training.schema.data import Digits, Mnist

MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
#: Images and labels to train on, images and labels held out.
FILES = (
    Remote(MIRROR + "train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
    Remote(MIRROR + "train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
    Remote(MIRROR + "t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
    Remote(MIRROR + "t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
)
NAMES = tuple(remote.name.removesuffix(".gz") for remote in FILES)
SIDE = 28
MEAN, DEVIATION = 0.1307, 0.3081
IMAGES, LABELS = 0x803, 0x801
WAY_OUT = f"put {NAMES[0]} and the other three there, packed with gzip or not"
OFFLINE = "set data.path to a folder with MNIST's four files, or data.fallback to digits"


def load(data: Mnist, cache: Path) -> tuple[Images, Images]:
    """Training and held-out images, 1 x 28 x 28. Raises InvalidInputError if there are none, and none can be fetched."""
    try:
        paths = [local(Path(data.path), name) for name in NAMES] if data.path else fetch(FILES, cache / "mnist", OFFLINE)
    except InvalidInputError as error:
        if data.fallback is None:
            raise
        print(f"WARNING no MNIST: {error}. Training on the 1,797 digits of 8x8 pixels instead, enlarged to 28x28", flush=True)
        return enlarged_digits()
    train_images, train_labels, held_out_images, held_out_labels = paths
    return read_set(train_images, train_labels), read_set(held_out_images, held_out_labels)


def local(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.exists():
            return path
    raise InvalidInputError(f"no {name} in {folder}: {WAY_OUT}")


def read_set(images: Path, labels: Path) -> Images:
    pixels, answers = read(images, IMAGES), read(labels, LABELS)
    if len(pixels) != len(answers) or pixels.shape[1:] != (SIDE, SIDE):
        raise InvalidInputError(f"{images} and {labels} do not belong together: {pixels.shape} pixels and {len(answers)} labels")
    return Images(normalized(torch.from_numpy(pixels).float() / 255)[:, None], torch.from_numpy(answers).long())


def read(path: Path, magic: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Read an IDX file: a magic number whose last byte is the number of dimensions, these, and the bytes."""
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        (found,) = struct.unpack_from(">I", content)
        shape = struct.unpack_from(f">{found & 0xFF}I", content, 4)
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * len(shape)).reshape(shape)
    except (OSError, EOFError, ValueError, struct.error) as error:
        raise InvalidInputError(f"{path} is no file of MNIST ({error}): {WAY_OUT}") from error
    if found != magic:
        raise InvalidInputError(f"{path} begins with {found:#x}, not {magic:#x}: {WAY_OUT}")
    return values.copy()


def enlarged_digits() -> tuple[Images, Images]:
    first, second = digits.load(Digits())
    return enlarged(first), enlarged(second)


def enlarged(small: Images) -> Images:
    large = digits.enlarged(small, SIDE)
    return Images(normalized(large.images), large.labels)


def normalized(images: Tensor) -> Tensor:
    return (images - MEAN) / DEVIATION
