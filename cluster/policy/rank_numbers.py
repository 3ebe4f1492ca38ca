"""Ranks as sentences list them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class HasRankNumber(Protocol):
    """An object with the number of a rank."""

    @property
    def rank(self) -> int: ...


def listed(ranks: Iterable[int | HasRankNumber]) -> str:
    """Return the numbers of ranks for a sentence: "0, 3"."""
    return ", ".join(str(rank if isinstance(rank, int) else rank.rank) for rank in ranks)
