"""Windows of tokens from memory-mapped token files, split by document into training and held-out text.

The documents of each part, one after another as they lie in the shards, form one long text; a sample is a window of context + 1 of its
tokens, and windows overlap by the one token that is input to one and target of the other. Nothing but the document index is held in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline.training.data import token_set
from paceline.training.data.token_set import TokenSet, TokenShard
from paceline.training.errors import InvalidInputError
from paceline.training.schema.data import Tokens
from paceline.training.task import Batch


@dataclass(frozen=True)
class TokenRuns:
    """Documents that follow each other in their shard: where each run begins in the text that they form together, and where it lies."""

    begins: NDArray[np.int64]  # one more than runs: the last is the length of the text
    shards: NDArray[np.int64]
    offsets: NDArray[np.int64]  # in the shard's tokens

    @property
    def tokens(self) -> int:
        return int(self.begins[-1])


class TokenWindows:
    """Consecutive windows of context + 1 tokens over `runs`."""

    def __init__(self, tokens: Sequence[NDArray[Any]], runs: TokenRuns, context: int) -> None:
        self.tokens, self.runs, self.context = tokens, runs, context

    def __len__(self) -> int:
        return max(0, (self.runs.tokens - 1) // self.context)

    def batch(self, indices: Tensor, generator: torch.Generator | None) -> Batch:
        windows = np.empty((len(indices), self.context + 1), dtype=np.int64)
        for window, index in zip(windows, indices.tolist(), strict=True):
            self.copy(index * self.context, window)
        return (torch.from_numpy(windows),)

    def copy(self, place: int, window: NDArray[np.int64]) -> None:
        """Fill `window` with the tokens of the text from `place` on."""
        run = int(np.searchsorted(self.runs.begins, place, side="right")) - 1
        filled = 0
        while filled < len(window):
            count = min(int(self.runs.begins[run + 1]) - place, len(window) - filled)
            start = int(self.runs.offsets[run]) + place - int(self.runs.begins[run])
            window[filled : filled + count] = self.tokens[self.runs.shards[run]][start : start + count]
            place, filled, run = place + count, filled + count, run + 1


def load(data: Tokens, context: int, vocab_size: int, copy: Path | None = None) -> tuple[TokenWindows, TokenWindows | None, TokenSet]:
    """Training and held-out windows (None: nothing is held out), and the manifest. `copy`: this node's copy of a set in an object store.
    Raises InvalidInputError."""
    folder = copy or Path(data.path)
    made = token_set.read(folder)
    token_set.require(folder, data.sha256)
    require_vocabulary(folder, made, vocab_size)
    token_set.check_sizes(folder, made)
    for _ in token_set.check_hashes(folder, made) if data.verify else ():
        pass
    tokens = [np.memmap(folder / shard.tokens_file, dtype=made.dtype, mode="r") for shard in made.shards]
    train, held_out = (TokenWindows(tokens, runs, context) for runs in split(folder, made.shards, data.holdout))
    require_windows(folder, made, data, train, held_out)
    return train, held_out if data.holdout else None, made


def require_vocabulary(folder: Path, made: TokenSet, vocab_size: int) -> None:
    if made.vocabulary > vocab_size:
        raise InvalidInputError(
            f"{folder} has a vocabulary of {made.vocabulary} tokens, more than model.vocab_size={vocab_size}; "
            f"set it to {made.vocabulary} or more"
        )


def require_windows(folder: Path, made: TokenSet, data: Tokens, train: TokenWindows, held_out: TokenWindows) -> None:
    if not len(train):
        raise InvalidInputError(
            f"{folder} leaves {train.runs.tokens} tokens to train on, fewer than one window of context={train.context} and a target; "
            "use a shorter context, a smaller holdout, or more text"
        )
    if data.holdout and not len(held_out):
        raise InvalidInputError(
            f"holdout={data.holdout} of the {made.documents} documents in {folder} leaves {held_out.runs.tokens} tokens to evaluate on, fewer "
            f"than one window of context={train.context} and a target; use a larger holdout, 0 for no evaluation, or more documents"
        )


def split(folder: Path, shards: Sequence[TokenShard], holdout: float) -> tuple[TokenRuns, TokenRuns]:
    """Return the runs of training documents and of held-out documents. A document's number alone decides which it belongs to."""
    sides: tuple[list[TokenPiece], list[TokenPiece]] = ([], [])
    first = 0
    for number, shard in enumerate(shards):
        ends = np.fromfile(folder / shard.ends_file, dtype="<u8").astype(np.int64)
        held = mixed(np.arange(first, first + len(ends))) < np.float64(holdout) * 2.0**64
        for side, piece in zip(sides, pieces(number, ends, held), strict=True):
            side.append(piece)
        first += len(ends)
    return joined(sides[0]), joined(sides[1])


@dataclass(frozen=True)
class TokenPiece:
    """The runs of one shard."""

    shard: int
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int64]


def pieces(shard: int, ends: NDArray[np.int64], held: NDArray[np.bool_]) -> tuple[TokenPiece, TokenPiece]:
    """Neighbours on the same side become one run."""
    firsts = np.flatnonzero(np.diff(held, prepend=~held[:1]))
    begins = np.concatenate(([0], ends[:-1]))[firsts]
    lengths = np.diff(np.append(begins, ends[-1]))
    is_held = held[firsts]
    return TokenPiece(shard, begins[~is_held], lengths[~is_held]), TokenPiece(shard, begins[is_held], lengths[is_held])


def joined(found: Sequence[TokenPiece]) -> TokenRuns:
    lengths = np.concatenate([piece.lengths for piece in found])
    return TokenRuns(
        begins=np.concatenate(([0], np.cumsum(lengths))),
        shards=np.repeat([piece.shard for piece in found], [len(piece.lengths) for piece in found]),
        offsets=np.concatenate([piece.offsets for piece in found]),
    )


def mixed(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Spread evenly over 64 bits (the finalizer of SplitMix64, Steele et al. 2014)."""
    mixing = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixing = (mixing ^ (mixing >> np.uint64(shift))) * np.uint64(factor)
    return mixing ^ (mixing >> np.uint64(31))
