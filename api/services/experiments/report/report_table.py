"""Tables of a report as text, the same for every format. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ReportTable:
    """`numbers`: the columns whose cells are aligned to the right. `marked`: rows that stand out, such as the recommended configuration."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    marked: frozenset[int] = frozenset()
    note: str = ""


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, text: int = 1, note: str = "") -> ReportTable:
    """A table whose first `text` columns are words, and all others numbers."""
    return ReportTable(title, columns, rows, frozenset(range(text, len(columns))), note=note)
