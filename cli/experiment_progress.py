"""An experiment followed on a terminal: a line for each trial that ends or pauses, and on stderr how far the whole is."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from paceline.cli.answers import parsed
from paceline.cli.api_types import Experiment, Trial, TrialCounts
from paceline.cli.render import formats
from paceline.cli.render.experiment_tables import ENDED_STATES, counts_text, values_text
from paceline.cli.render.output import note
from paceline.cli.settings import plain_output
from paceline.cli.waiting import patient

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

POLL_SECONDS = 1.0
#: States of an experiment in which nothing more will happen unless somebody asks for it.
AT_REST = frozenset({"completed", "stopped", "cancelled"})
PAUSED = "paused"
#: States of trials of which the step matters: there they are compared.
STOPPED_AT_RUNG = (PAUSED, "pruned")

Show = Callable[[Experiment], None]


def follow_experiment(client: RestClient, experiment_id: str) -> Any:
    """Tell on stderr of each trial that ends or pauses, until the experiment is at rest. Returns its document. A coordinator that is away is waited for."""
    path, told = f"/experiments/{experiment_id}", TrialNews(client, experiment_id)
    with _status_line() as show:
        while True:
            document = patient(functools.partial(client.get, path))
            experiment = parsed(document, Experiment)
            told.tell(experiment)
            show(experiment)
            if experiment.state in AT_REST:
                return document
            threading.Event().wait(POLL_SECONDS)


class TrialNews:
    """Tells once that a trial has ended, or paused at a rung, and each new reason why none runs."""

    def __init__(self, client: RestClient, experiment_id: str) -> None:
        self._client = client
        self._path = f"/experiments/{experiment_id}/trials"
        self._counts: TrialCounts | None = None
        self._is_waiting = False  # for the figures of a trial that has stopped
        self._told: set[tuple[int, str, int]] = set()
        self._waits_for = ""

    def tell(self, experiment: Experiment) -> None:
        if experiment.trials != self._counts or self._is_waiting:
            self._counts = experiment.trials
            found = [parsed(each, Trial) for each in patient(functools.partial(self._client.pages, self._path))]
            stopped = [each for each in found if each.state in (PAUSED, *ENDED_STATES)]
            complete = [each for each in stopped if experiment.state in AT_REST or _is_complete(each)]
            self._is_waiting = len(complete) < len(stopped)
            self._tell_of(complete)
        reason = experiment.waits_for.text if experiment.waits_for else ""
        if reason and reason != self._waits_for:
            note(f"note: waiting: {reason}")
        self._waits_for = reason

    def _tell_of(self, trials: Iterable[Trial]) -> None:
        for trial in trials:
            key = (trial.index, trial.state, trial.job.step if trial.job and trial.state == PAUSED else 0)
            if key not in self._told:
                self._told.add(key)
                note(rest(trial))


def _is_complete(trial: Trial) -> bool:
    """Tell whether metric and speed are of the trial's last step: they come a moment after its end."""
    return trial.job is None or trial.metric_step >= trial.job.step


def rest(trial: Trial) -> str:
    """Return one sentence on a trial that has ended or paused."""
    name = f"trial {trial.index} ({values_text(trial.values)}{f', repeat {trial.repeat}' if trial.repeat else ''})"
    if trial.refusal is not None:
        return f"{name} refused: {trial.refusal}"
    speed, step = (trial.job.samples_per_second, trial.job.step) if trial.job else (None, 0)
    facts = [f"{formats.quantity(speed)} samples/s"] if speed is not None else []
    facts += [f"metric {formats.significant(trial.metric)}"] if trial.metric is not None else []
    facts += [f"{trial.job.end_reason}; paceline show {trial.job.name}"] if trial.state == "failed" and trial.job else []
    return ", ".join([f"{name} {trial.state}{f' at step {step}' if trial.state in STOPPED_AT_RUNG else ''}", *facts])


def progress_line(experiment: Experiment) -> str:
    """Return how far the experiment is, in one line."""
    left = "" if experiment.seconds_left is None else f"; about {formats.duration(experiment.seconds_left)} left"
    return f"{experiment.name} {experiment.state}: {counts_text(experiment.trials) if experiment.trials else ''}{left}"


@contextlib.contextmanager
def _status_line() -> Iterator[Show]:
    """On a terminal, a line below everything else that is kept up to date; elsewhere, nothing."""
    if not sys.stderr.isatty() or plain_output():
        yield lambda experiment: None
        return
    from rich.console import Console
    from rich.status import Status

    with Status("", console=Console(stderr=True)) as status:
        yield lambda experiment: status.update(progress_line(experiment))
