"""What a training script imports to be seen, and to train on many ranks.

import paceline

print(paceline.world().rank)
paceline.log(step, loss=loss.item(), sample=paceline.Image(picture))
paceline.log_artifact("scores.csv")  # kept with the job
trainer = paceline.Trainer(model, strategy="fsdp")  # a loop of one's own

def make_task(spec):  # or a loop of Paceline's, for an entrypoint
    return paceline.Task(model=model, train=dataset, loss=loss)

run = paceline.init(project="digits", config={"lr": 0.1})  # for scripts that were written for wandb
paceline.log({"train/loss": loss.item()})
paceline.finish()

client = paceline.Client()  # elsewhere: submit jobs, follow them, in place of the command line

Works in a job, under torchrun, and as a world of one where nothing says otherwise. `paceline.integrations` has callbacks for frameworks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from paceline.artifacts import log_artifact
    from paceline.client import AsyncClient, Client
    from paceline.distributed.env import Position
    from paceline.images import Image
    from paceline.media import Histogram, Table
    from paceline.parallelism.pipelines.chain import Unit
    from paceline.tracking import Fields, Run, finish, init
    from paceline.training.own_loop.communication_optimizer import CommunicationOptimizer
    from paceline.training.own_loop.faces import DistributedTrainer, EnhancedDistributedTrainer
    from paceline.training.own_loop.gradient_interceptor import GradientRecord, GradientReport, intercept_gradients
    from paceline.training.own_loop.loader import loader
    from paceline.training.own_loop.monitor import DistributedMonitor
    from paceline.training.own_loop.trainer import Trainer
    from paceline.training.spec.job import JobSpec
    from paceline.training.task import Batch, Dataset, Loss, Stream, Task

    run: Run | None
    config: Fields
    summary: Fields

#: Where each name is made. Imported when it is first used: the command line and the coordinator import this package too, and neither needs torch.
_HOMES = {
    "paceline.artifacts": ("log_artifact",),
    "paceline.client": ("AsyncClient", "Client"),
    "paceline.distributed.env": ("Position",),
    "paceline.images": ("Image",),
    "paceline.media": ("Histogram", "Table"),
    "paceline.parallelism.pipelines.chain": ("Unit",),
    "paceline.tracking": ("Run", "finish", "init"),
    "paceline.training.own_loop.communication_optimizer": ("CommunicationOptimizer",),
    "paceline.training.own_loop.faces": ("DistributedTrainer", "EnhancedDistributedTrainer"),
    "paceline.training.own_loop.gradient_interceptor": ("GradientRecord", "GradientReport", "intercept_gradients"),
    "paceline.training.own_loop.loader": ("loader",),
    "paceline.training.own_loop.monitor": ("DistributedMonitor",),
    "paceline.training.own_loop.trainer": ("Trainer",),
    "paceline.training.spec.job": ("JobSpec",),
    "paceline.training.task": ("Batch", "Dataset", "Loss", "Stream", "Task"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_OF_THE_RUN = frozenset({"config", "run", "summary"})

__all__ = [
    "AsyncClient",
    "Batch",
    "Client",
    "CommunicationOptimizer",
    "Dataset",
    "DistributedMonitor",
    "DistributedTrainer",
    "EnhancedDistributedTrainer",
    "GradientRecord",
    "GradientReport",
    "Histogram",
    "Image",
    "JobSpec",
    "Loss",
    "Position",
    "Run",
    "Stream",
    "Table",
    "Task",
    "Trainer",
    "Unit",
    "finish",
    "init",
    "intercept_gradients",
    "loader",
    "log",
    "log_artifact",
    "world",
]


@overload
def log(step: int, /, **values: float | Image | Sequence[Image] | Histogram | Table) -> None: ...


@overload
def log(data: Mapping[str, Any], /, step: int | None = None, commit: bool | None = None) -> None: ...


def log(*place: Any, **values: Any) -> None:
    """Record values as measured at a step; they become live curves of the job. Never blocks. Call it from the rank's own process.

    `log(step, loss=0.5)`: `step` is an integer from 0 up; integers of numpy and torch count. Values are single numbers: float, int, or a
    numpy or torch scalar (reading one that is on a GPU waits for the GPU). NaN and the infinities are kept. Beside them, `paceline.Image(...)` or a
    list of images, `paceline.Histogram(...)` and `paceline.Table(...)`; what is over a limit of size is dropped and told once. Raises TypeError
    or ValueError for anything else, and for names that the trainer records itself. Names over `monitoring.points.MAX_NAMES` are dropped and told once.

    `log({"train/loss": 0.5}, step=None, commit=None)`: as `wandb.log`; see `paceline.tracking.Run.log`, also for what it raises.

    Outside a job the values are printed.
    """
    given = place[0] if place else values.get("data")
    if isinstance(given, Mapping):
        _log_data(*place, **values)
    else:
        _log_step(*place, **values)


def _log_data(data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **ignored: Any) -> None:
    from paceline.tracking import current

    current.get_or_begin().log(data, step, commit, **ignored)


def _log_step(*place: Any, **values: Any) -> None:
    from paceline.recording import record

    if len(place) > 1 or (place and "step" in values) or not (place or "step" in values):
        raise TypeError("paceline.log takes one step and named values, log(step, loss=0.5), or a mapping, log({'loss': 0.5}, step=step)")
    record(place[0] if place else values.pop("step"), values)


def world() -> Position:
    """Return this rank's position: rank, world size and so on; a world of one outside a job.

    Raises ValueError if a variable of torchrun's is not a number.
    """
    from paceline.distributed.env import position

    return position()


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = globals()[name] = getattr(import_module(_HOME[name]), name)
        return found
    if name in _OF_THE_RUN:  # of the one that was begun last
        from paceline.tracking import current

        return current.run if name == "run" else getattr(current.get_or_begin(), name)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}: of wandb it has init, log, finish, run, config, summary, Image, Histogram and Table; "
        "files are kept by paceline.log_artifact"
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_OF_THE_RUN})
