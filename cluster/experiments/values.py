"""The values of an experiment's axes, and what no database or JSON could hold of them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from paceline.cluster.experiments.spec import Axis, ExperimentSpec, Range

#: Significant digits of a value of a range: what is beyond them is rounding.
DIGITS = 12
#: Mappings and lists inside each other, as in job specs.
MOST_DEPTH = 32


def values_of(axis: Axis) -> Sequence[Any]:
    """Return the values of an axis in their order."""
    return _spread(axis) if isinstance(axis, Range) else axis


def combinations(spec: ExperimentSpec) -> Iterator[dict[str, Any]]:
    """Yield every combination of the grid and the zipped columns, by path; the last axis varies fastest."""
    axes: list[list[dict[str, Any]]] = [[{path: value} for value in values_of(axis)] for path, axis in spec.grid.items()]
    axes += [[dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)] for table in spec.zip if table]
    for parts in product(*axes):
        yield {path: value for part in parts for path, value in part.items()}


def count_combinations(spec: ExperimentSpec) -> int:
    grid = [len(values_of(axis)) for axis in spec.grid.values()]
    columns = [len(next(iter(table.values()))) for table in spec.zip if table]
    return math.prod([*grid, *columns])


def why_unstorable(value: Any, place: tuple[str, ...] = ()) -> tuple[tuple[str, ...], str] | None:
    """Return the first place in a document whose value cannot be stored, and why; None: all of it can be."""
    if len(place) > MOST_DEPTH:
        return place, f"more than {MOST_DEPTH} mappings and lists are inside each other; a job spec has 4"
    if isinstance(value, float) and not math.isfinite(value):
        return place, f"{value} is no finite number; write one"
    if isinstance(value, str) and any(sign == "\0" or "\ud800" <= sign <= "\udfff" for sign in value):
        return place, "there is a NUL or half a character in this text; leave it out"
    parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list | tuple) else ()
    for name, part in parts:
        found = why_unstorable(str(name), place) or why_unstorable(part, (*place, str(name)))
        if found is not None:
            return found
    return None


def _spread(axis: Range) -> list[float | int]:
    if axis.scale == "log":
        first, last = math.log(axis.first), math.log(axis.last)
        values = [math.exp(first + (last - first) * step / (axis.count - 1)) for step in range(axis.count)]
    else:
        values = [axis.first + (axis.last - axis.first) * step / (axis.count - 1) for step in range(axis.count)]
    return [_short(value) for value in values]


def _short(value: float) -> float | int:
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded
