"""Ranks as sentences list them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Protocol

#: So many ranks one behind the other are told by the first and the last of them: a sentence about 512 ranks stays a sentence.
SHORTENED_FROM = 4


class HasRankNumber(Protocol):
    """An object with the number of a rank."""

    @property
    def rank(self) -> int: ...


def listed(ranks: Iterable[int | HasRankNumber]) -> str:
    """Return the numbers of ranks for a sentence, in the order given: "0, 3", "0-6, 8"."""
    numbers = [rank if isinstance(rank, int) else rank.rank for rank in ranks]
    runs = [[number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda placed: placed[1] - placed[0])]
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) >= SHORTENED_FROM else ", ".join(map(str, run)) for run in runs)
