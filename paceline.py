"""What a training script imports to be seen: metrics of its own, and its place in the world. Works, and does nothing much, outside a job.

import paceline

print(paceline.world().rank)
paceline.log(step, loss=loss.item())
"""

from __future__ import annotations

import atexit
import functools
from pathlib import Path

from distributed.env import Position, position, rank_folder
from monitoring.recorder import Recorder, recorder_at
from training.link import RankFolder

__all__ = ["Position", "log", "world"]


def log(step: int, **values: float) -> None:
    """Record `values` as measured at `step`; they become live curves of the job. Never blocks. Call it from the rank's own process.

    Outside a job it prints them.
    """
    folder = rank_folder()
    if folder is None:
        print(f"step {step}", *(f"{name} {value:.6g}" for name, value in values.items()), flush=True)
        return
    _recorder(folder).record(step, {name: float(value) for name, value in values.items()})


def world() -> Position:
    """Rank, world size and so on; a world of one outside a job."""
    return position()


@functools.cache
def _recorder(folder: Path) -> Recorder:
    recorder = recorder_at(RankFolder.at(folder).metrics)
    atexit.register(recorder.close)
    return recorder
