"""The source of the installed Python standard library as bytes: real text that every machine has.

All .py files except tests and installed packages, in the order of their paths, split by file into training and held-out text.
Each split is written once per machine to one cache file and memory-mapped from then on; its name is a hash of what went in, so another
Python, or an updated one, gets a file of its own. A sample is a window of context + 1 bytes; windows overlap by the one byte
that is input to one and target of the other.
"""

from __future__ import annotations

import hashlib
import os
import sysconfig
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from paceline.training.data.sampler import derive_seed
from paceline.training.errors import InvalidInputError
from paceline.training.schema.data import StdlibText
from paceline.training.task import Batch

EXCLUDED = frozenset({"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"})
FORMAT = b"1"


class TextWindows:
    """Consecutive windows of context + 1 bytes over a memory-mapped file."""

    def __init__(self, path: Path, context: int) -> None:
        self.text = np.memmap(path, dtype=np.uint8, mode="r")
        self.context = context
        self.offsets = np.arange(context + 1)
        if len(self) < 1:
            raise InvalidInputError(f"context={context} is longer than the {self.text.size} bytes of {path}; use a shorter one")

    def __len__(self) -> int:
        return (self.text.size - 1) // self.context

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        starts = indices.numpy() * self.context
        return (torch.from_numpy(self.text[starts[:, None] + self.offsets].astype(np.int64)),)


def load(data: StdlibText, context: int, cache: Path) -> tuple[TextWindows, TextWindows]:
    """Training and held-out windows."""
    root = Path(sysconfig.get_path("stdlib"))
    files = source_files(root)
    held_out = {file for file in files if is_held_out(file.relative_to(root), data.holdout)}
    train = [file for file in files if file not in held_out]
    parts = [("train", train), ("heldout", [file for file in files if file in held_out])]
    first, second = (TextWindows(cached(name, chosen, cache), context) for name, chosen in parts)
    return first, second


def source_files(root: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in EXCLUDED]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found)


def is_held_out(path: Path, holdout: float) -> bool:
    """Decided by the path alone, so that a file never changes sides."""
    digest = hashlib.sha256(path.as_posix().encode()).digest()
    return derive_seed(int.from_bytes(digest[:8], "big")) < holdout * 2**63


def cached(name: str, files: list[Path], cache: Path) -> Path:
    """The files' concatenation, built once; ranks that build it at the same time write the same bytes."""
    path = cache / f"stdlib-{name}-{fingerprint(files)}.bin"
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        scratch = path.with_suffix(f".{os.getpid()}.tmp")
        scratch.write_bytes(b"\n".join(file.read_bytes() for file in files))
        scratch.rename(path)
    return path


def fingerprint(files: list[Path]) -> str:
    digest = hashlib.sha256(FORMAT)
    for file in files:
        status = file.stat()
        digest.update(f"{file}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
