"""Which checkpoints of an own loop are kept, and which one is the best. The decisions are pure; `CheckpointRetention.apply` carries them out on rank 0.

The best one has a link beside the checkpoints, `best`, which moves as a whole: `trainer.load_checkpoint(optimizer, "checkpoints/best")`.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paceline.training.errors import InvalidInputError
from paceline.training.own_loop.options import read_whole
from paceline.training.saving import manifest as manifests
from paceline.training.saving.manifest import Manifest

BEST = "best"


@dataclass(frozen=True)
class Saved:
    """A published checkpoint. `value`: what it measured of the metric; None if it did not, or measured NaN.

    Each start and each load saves as a later generation: so `age` is the order in time, also where training has gone back to an earlier step.
    """

    name: str
    step: int
    generation: int
    value: float | None
    finite: bool = True  # no trained parameter is NaN or infinite

    @property
    def age(self) -> tuple[int, int]:
        return self.generation, self.step


@dataclass(frozen=True)
class CheckpointRetention:
    """keep_last: newest checkpoints that are kept, None for all; keep_best: further ones, the best by `metric`."""

    keep_last: int | None = None
    keep_best: int = 1
    metric: str = "loss"
    mode: Literal["min", "max"] = "min"

    def value_in(self, manifest: Manifest) -> float | None:
        value = manifest.metrics.get(self.metric)
        return float(value) if isinstance(value, int | float) and not math.isnan(value) else None

    def better(self, value: float | None, other: float | None) -> float | None:
        """Return the better of two values of the metric; None only if there is neither."""
        known = [each for each in (value, other) if each is not None]
        return (min if self.mode == "min" else max)(known, default=None)

    def best_first(self, saved: Sequence[Saved]) -> list[Saved]:
        """Return the checkpoints that have measured the metric, the best first, of equal ones the newest first."""
        sign = 1.0 if self.mode == "min" else -1.0
        measured = [(sign * each.value, each) for each in sorted(saved, key=lambda each: each.age, reverse=True) if each.value is not None]
        return [each for _, each in sorted(measured, key=lambda found: found[0])]

    def to_delete(self, saved: Sequence[Saved], marked: str | None) -> list[Saved]:
        """Return the checkpoints to delete, the oldest first; the newest that is finite is none of them. `marked`: the one that is the best by its
        user's word."""
        if self.keep_last is None:
            return []
        by_age = sorted(saved, key=lambda each: each.age)
        finite = [each for each in by_age if each.finite][-1:]
        kept = {each.name for each in [*by_age[-self.keep_last :], *self.best_first(saved)[: self.keep_best], *finite]} | {marked}
        return [each for each in by_age if each.name not in kept]

    def apply(self, directory: Path, newest: Path, *, is_best: bool | None) -> None:
        """Move the link to the best checkpoint, and delete what is not to be kept. `is_best`: the user's word on `newest`; None: the metric
        decides."""
        saved = self.saved_in(directory)
        ranked = self.best_first(saved)
        if is_best:
            point_to(directory, newest.name)
        elif is_best is None and ranked:
            point_to(directory, ranked[0].name)
        for each in self.to_delete(saved, marked_in(directory)):
            withdraw(directory, each)

    def saved_in(self, directory: Path) -> list[Saved]:
        return [
            Saved(
                found.directory.name,
                found.manifest.step,
                found.manifest.generation,
                self.value_in(found.manifest),
                found.manifest.finite is not False,
            )
            for found in manifests.published(directory, ())
        ]


def read_retention(keep_last: int | None, keep_best: int, best_metric: str, best_mode: str) -> CheckpointRetention:
    """Check a Trainer's arguments and return them. Raises InvalidInputError."""
    keep_last = None if keep_last is None else read_whole("keep_last", keep_last)
    if keep_last is not None and keep_last < 1:
        raise InvalidInputError(f"keep_last={keep_last} is less than 1; the newest checkpoint is always kept, and None keeps all of them")
    keep_best = read_whole("keep_best", keep_best)
    if keep_best < 0:
        raise InvalidInputError(f"keep_best={keep_best} is negative; use 0 to keep none for being good")
    if best_mode not in ("min", "max"):
        raise InvalidInputError(
            f"best_mode={best_mode!r} is not known; use min where less is better (a loss), max where more is (an accuracy)"
        )
    return CheckpointRetention(keep_last, keep_best, best_metric, best_mode)  # type: ignore[arg-type]


def marked_in(directory: Path) -> str | None:
    """Return the name of the checkpoint that the link leads to; None where there is no link."""
    link = directory / BEST
    return os.readlink(link) if link.is_symlink() else None


def point_to(directory: Path, name: str) -> None:
    """Make the link lead to checkpoint `name`. A reader sees the old one or the new one."""
    if marked_in(directory) == name:
        return
    temporary = directory / f".{BEST}.{secrets.token_hex(8)}"
    temporary.symlink_to(name)
    temporary.replace(directory / BEST)


def withdraw(directory: Path, saved: Saved) -> None:
    """Delete a checkpoint: renamed to debris first, so that a half deleted one is none. A disk that refuses keeps it."""
    gone = directory / f"{saved.name}{manifests.GONE}"
    with contextlib.suppress(OSError):
        (directory / saved.name).rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
