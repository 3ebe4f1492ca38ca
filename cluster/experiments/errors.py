"""What is wrong with an experiment spec as a whole.

ExperimentRefusedError(refusals)      nothing of it can run; each refusal names a field, what is wrong, and the way out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """One wrong field. `place`: where in the experiment spec, name by name."""

    place: tuple[str, ...]
    code: str
    message: str
    way_out: str | None = None


class ExperimentRefusedError(ValueError):
    def __init__(self, refusals: Sequence[Refusal]) -> None:
        super().__init__("; ".join(f"{'.'.join(each.place)}: {each.message}" for each in refusals))
        self.refusals = tuple(refusals)

    def __reduce__(self) -> tuple[type[ExperimentRefusedError], tuple[tuple[Refusal, ...]]]:
        """Support pickling: a worker process expands large grids."""
        return ExperimentRefusedError, (self.refusals,)
