"""Small token sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.training.data import token_set
from paceline.training.data.documents import cut, find
from paceline.training.data.token_set import TokenSet
from paceline.training.data.tokenize import TokenizeProgress, TokenizeRecipe, tokenize

BYTES = TokenizeRecipe("bytes", None, "text")


def make(
    folder: Path, inputs: Sequence[Path], *, portion_bytes: int = 1_000_000, match: str = "*", recipe: TokenizeRecipe = BYTES
) -> TokenSet:
    return tokenize(folder, cut(find(inputs, match), portion_bytes), recipe, 1, nobody)


def nobody(_: TokenizeProgress) -> None:
    """Is told how it goes on."""


def texts(folder: Path) -> list[bytes]:
    """The documents of a set of bytes, as its files have them."""
    made, found = token_set.read(folder), []
    for shard in made.shards:
        ids = np.fromfile(folder / shard.tokens_file, dtype=made.dtype)
        ends = np.fromfile(folder / shard.ends_file, dtype="<u8").tolist()
        assert ids[[end - 1 for end in ends]].tolist() == [made.end] * len(ends)
        found += [bytes(ids[start : end - 1].tolist()) for start, end in zip([0, *ends], ends, strict=False)]
    return found


def write_texts(folder: Path, count: int = 40) -> list[bytes]:
    """Files of different lengths; what is in them, in the order of their names."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [(f"document {number}: " + "so é on " * (number % 7)).encode() for number in range(count)]
    for number, text in enumerate(written):
        (folder / f"{number:03}.txt").write_bytes(text)
    return written
