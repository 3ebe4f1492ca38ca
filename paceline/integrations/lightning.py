"""A logger for Lightning's Trainer and for Fabric: `Trainer(logger=PacelineLogger())`, `Fabric(loggers=PacelineLogger())`."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from paceline.configuration import record_config
from paceline.recording import ForeignMetrics
from paceline.tracking import Run, current
from paceline.training.own_loop.recorders import job_folder, job_recorder

try:
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers.logger import Logger, rank_zero_experiment
    from lightning.pytorch.utilities import rank_zero_only
except ModuleNotFoundError:  # the same library under its older name
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.loggers.logger import Logger, rank_zero_experiment
    from pytorch_lightning.utilities import rank_zero_only


#: What ThroughputMonitor logs of several ranks together, and of rank 0 alone.
_OF_ALL, _OF_ONE = "train/samples_per_sec", "train/device/samples_per_sec"


class PacelineLogger(Logger):
    """Records the metrics of Lightning on world rank 0 as curves of the job, at Lightning's step, which counts the optimizer's.

    `name` and `version` are the folders in which ModelCheckpoint saves if this is the Trainer's first logger: they stay the same when the
    job is started again.
    """

    def __init__(self, name: str = "paceline") -> None:
        super().__init__()
        self._name = name
        self._metrics = ForeignMetrics()
        self._step = 0

    @property
    def name(self) -> str:
        """Name of the logger, and of its folder."""
        return self._name

    @property
    def version(self) -> str:
        """Id of the job, or `no_job` outside one."""
        folder = job_folder()
        return "no_job" if folder is None else folder.job_id

    @property
    @rank_zero_experiment
    def experiment(self) -> Run:
        """The run that `paceline.log` and `paceline.config` belong to as well."""
        return current.get_or_begin()

    @rank_zero_only
    def log_hyperparams(self, params: Mapping[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Record the hyperparameters in the job's history."""
        record_config(params)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Record `metrics` at `step`. Without one, as Fabric may call it, calls are counted from 0."""
        if step is None:
            self._metrics.note_counted()
        if _OF_ONE in metrics and _OF_ALL not in metrics:  # the only rank
            metrics = {_OF_ALL if name == _OF_ONE else name: value for name, value in metrics.items()}
        self._metrics.record(self._step if step is None else step, metrics)
        self._step = (self._step if step is None else step) + 1

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Write what was logged to the disk before this returns."""
        recorder = job_recorder()
        if recorder is not None:
            recorder.flush()


class AddPacelineLogger(Callback):
    """Adds `PacelineLogger` to a Trainer that logs, for each Trainer in a job (`paceline.plugins`). `logger=False` stays without one."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Add a `PacelineLogger` behind the Trainer's own loggers: the first logger names the folder of checkpoints."""
        has_one = any(isinstance(logger, PacelineLogger) for logger in trainer.loggers)
        if trainer.loggers and not has_one and not trainer.fast_dev_run:
            trainer.loggers = [*trainer.loggers, PacelineLogger()]  # last: the first one names the folder of checkpoints
