"""What a training script imports to be seen, and to train on many ranks with a loop of its own.

import paceline

print(paceline.world().rank)
paceline.log(step, loss=loss.item())
trainer = paceline.Trainer(model, strategy="fsdp")

Works in a job, under torchrun, and as a world of one where nothing says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed.env import Position, position
from monitoring.checks import checked_step, checked_values
from training.own_loop.recorders import job_recorder

if TYPE_CHECKING:
    from training.own_loop.trainer import Trainer

__all__ = ["Position", "Trainer", "log", "world"]


def log(step: int, **values: float) -> None:
    """Record `values` as measured at `step`; they become live curves of the job. Never blocks. Call it from the rank's own process.

    `step` is an integer from 0 up; integers of numpy and torch count. Values are single numbers: float, int, or a numpy or torch scalar
    (reading one that is on a GPU waits for the GPU). NaN and the infinities are kept. Raises TypeError or ValueError for anything else,
    and for names that the trainer records itself. Names over `monitoring.points.MAX_NAMES` are dropped and told once. Outside a job
    the values are printed.
    """
    recorder = job_recorder()
    if recorder is not None:
        recorder.record_own(step, values)
        return
    shown = checked_values(values, set())
    print(f"step {checked_step(step)}", *(f"{name} {value:.6g}" for name, value in shown.items()), flush=True)


def world() -> Position:
    """Rank, world size and so on; a world of one outside a job."""
    return position()


def __getattr__(name: str) -> Any:
    """`Trainer` needs torch, which takes a second to import; the rest does without."""
    if name != "Trainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from training.own_loop.trainer import Trainer

    return Trainer
