"""wandb's `init`, `log` and `finish`, and its run, for scripts that were written for them. Source: wandb's reference of `init` and `Run`.

A job has one set of curves, those of rank 0: any rank may log, and what a run is called changes nothing but the words in the job's history.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping
from typing import Any

from paceline.configuration import as_mapping, record_config, shown
from paceline.distributed.env import position
from paceline.monitoring.at_end import call_at_end, forget_at_end
from paceline.monitoring.checks import checked_step
from paceline.recording import ForeignMetrics
from paceline.training.own_loop.recorders import job_folder, job_media_recorder, job_recorder


class Fields(dict[str, Any]):
    """A dictionary whose entries can be read and set as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"{name!r} is not set; there is {', '.join(map(str, self)) or 'nothing'}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def update(self, values: Any = None, /, allow_val_change: bool | None = None, **more: Any) -> None:
        """Set entries from a mapping, or from an object with attributes such as `argparse.Namespace`; any entry may be set again.

        Raises TypeError for anything else.
        """
        super().update(as_mapping(values), **more)


class Run:
    """A run, as of wandb: a name, a configuration, a summary of the newest values, and a step that counts on."""

    def __init__(self, project: str | None = None, name: str | None = None, config: Any = None) -> None:
        folder = job_folder()
        job_recorder()  # before `call_at_end` below: what the run's end records must find it open
        self.id = secrets.token_hex(4) if folder is None else folder.job_id
        self.name = name or self.id
        self.project = project or ""
        self.config, self.summary = Fields(), Fields()
        self.config.update(config)
        self.finished = False
        self._step = 0
        self._metrics = ForeignMetrics()
        self._recorded_config = Fields()
        self._warned = False
        call_at_end(self.finish)
        self.record_config()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    @property
    def step(self) -> int:
        """Step at which the next `log` without a step records."""
        return self._step

    def log(self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, **_: Any) -> None:
        """Record the numbers, images, histograms and tables in `data`; nested mappings are flattened with slashes, and other values are left out and told once.

        Without `step` they belong to the run's own step, which starts at 0 and is one higher after each call, or stays with `commit=False`. With
        `step` the run goes to that step, and stays there unless `commit=True`; a step before the run's is dropped and told once. Each call
        is recorded at once. Raises RuntimeError on a run that is finished, TypeError if `data` is not a mapping, and TypeError or ValueError
        if `step` is not an integer from 0 up.
        """
        if self.finished:
            raise RuntimeError(f"run {self.name} is finished: log before finish(), or begin another run with paceline.init()")
        if not isinstance(data, Mapping):
            raise TypeError(f"{data!r} ({type(data).__name__}) is not a mapping: log a dictionary of names and values")
        if step is not None and not self._go_to(checked_step(step)):
            return
        self.record_config()
        if step is None:
            self._metrics.note_counted()
        self.summary.update(self._metrics.record(self._step, data))
        if commit or (commit is None and step is None):
            self._step += 1

    def _go_to(self, step: int) -> bool:
        if step >= self._step:
            self._step = step
            return True
        if not self._warned:
            self._warned = True
            message = f"step {step} lies before the run's step {self._step}: what is logged there is dropped; steps only grow"
            print(f"WARNING paceline.log: {message}", file=sys.stderr, flush=True)
        return False

    def record_config(self) -> None:
        """Record the run's configuration in the job's history, if it has changed since it was recorded."""
        if self.config and self.config != self._recorded_config:
            self._recorded_config = Fields(self.config)
            record_config(self.config, self.name, self.project)

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run, with everything it has logged on the disk. A second call does nothing."""
        if self.finished:
            return
        self.finished = True
        forget_at_end(self.finish)
        self.record_config()
        if position().rank == 0 and self.summary and not quiet:
            print(f"run {self.name}, summary: {shown(self.summary)}", flush=True)
        recorder = job_recorder()
        if recorder is not None:
            media = job_media_recorder()
            if media is not None:
                media.flush()
            recorder.flush()


class CurrentRun:
    """Holds the run that was begun last in this process."""

    def __init__(self) -> None:
        self.run: Run | None = None

    def get_or_begin(self) -> Run:
        """Return the current run; begin one if there is none."""
        if self.run is None or self.run.finished:
            self.run = Run()
        return self.run


current = CurrentRun()


def init(project: str | None = None, name: str | None = None, config: Any = None, **ignored: Any) -> Run:
    """Begin a run, as `wandb.init` does; where one has begun and is not finished, return that one with `config` added.

    `config`: a mapping, or an object with attributes such as `argparse.Namespace`; it is written into the job's history. Other arguments
    of `wandb.init` are ignored, with a word. Raises TypeError for any other `config`.
    """
    if ignored and position().rank == 0:
        print(f"paceline.init: {', '.join(ignored)} mean nothing here and are ignored", flush=True)
    if current.run is not None and not current.run.finished:
        current.run.config.update(config)
        return current.run
    current.run = Run(project, name, config)
    return current.run


def finish(exit_code: int | None = None, quiet: bool | None = None) -> None:
    """End the run that `init` began. Does nothing where there is none."""
    run, current.run = current.run, None
    if run is not None:
        run.finish(exit_code, quiet)
