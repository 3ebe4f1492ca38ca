"""What `paceline.Client` does with experiments. A part of the client, in a file of its own."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.cli.answers import parsed
from paceline.cli.api_types import Experiment, ExperimentAnalysis, ExperimentPlan, ExperimentSummary, Job, Trial
from paceline.cli.client import RestClient
from paceline.cli.documents import KEYED_BY_PATH, parse_spec, read_spec
from paceline.cli.errors import UsageProblem, WaitTimedOutError
from paceline.cli.experiment_exports import ExportedFigure, download_export, export_format
from paceline.cli.experiment_progress import AT_REST, POLL_SECONDS
from paceline.cli.job_folder import in_its_folder
from paceline.cli.waiting import patient

#: A spec: a mapping, YAML text, or the path of a file.
Spec = Mapping[str, Any] | str | Path


class ExperimentMethods:
    """The methods of a client that are of experiments, which are named by their id or name."""

    _rest: RestClient

    def plan_experiment(self, spec: Spec) -> ExperimentPlan:
        """Return which trials the experiment would run, and which configurations are refused and why. Nothing is submitted."""
        return parsed(self._rest.create("/experiments/plan", experiment_document_of(spec)), ExperimentPlan)

    def submit_experiment(self, spec: Spec) -> Experiment:
        """Start an experiment. One of the same project and name is extended: only what is missing of the grid runs."""
        return parsed(self._rest.create("/experiments", experiment_document_of(spec)), Experiment)

    def experiments(
        self, *, status: str | None = None, project: str | None = None, search: str | None = None, limit: int | None = None
    ) -> list[ExperimentSummary]:
        """Return experiments, the newest first; `status` may name several states, `search` is a part of the name."""
        found = self._rest.pages("/experiments", limit, status=status, project=project, q=search)
        return [parsed(document, ExperimentSummary) for document in found]

    def experiment(self, experiment: str) -> Experiment:
        """Return one experiment, with its spec and how far it is."""
        return parsed(self._rest.get(self._experiment_path(experiment)), Experiment)

    def trials(self, experiment: str) -> list[Trial]:
        """Return all trials of the experiment, in the order of its grid."""
        return [parsed(document, Trial) for document in self._rest.pages(f"{self._experiment_path(experiment)}/trials")]

    def pause_experiment(self, experiment: str) -> Experiment:
        """Pause all running trials, and start no more."""
        return parsed(self._rest.put(f"{self._experiment_path(experiment)}/pause"), Experiment)

    def resume_experiment(self, experiment: str) -> Experiment:
        """Go on with a paused experiment."""
        return parsed(self._rest.put(f"{self._experiment_path(experiment)}/resume"), Experiment)

    def cancel_experiment(self, experiment: str) -> Experiment:
        """Stop the experiment for good, with the trials that run; what they have measured stays."""
        return parsed(self._rest.delete(self._experiment_path(experiment)), Experiment)

    def wait_for_experiment(self, experiment: str, *, timeout: float = 86_400.0) -> Experiment:
        """Wait until no trial runs or will run, and return the experiment. A coordinator that is away is waited for.

        Raises WaitTimedOutError after `timeout` seconds.
        """
        deadline, path = time.monotonic() + timeout, self._experiment_path(experiment)
        while True:
            now = parsed(patient(functools.partial(self._rest.get, path)), Experiment)
            if now.state in AT_REST:
                return now
            if time.monotonic() >= deadline:
                raise WaitTimedOutError(
                    f"{now.name} is still {now.state} after {timeout:g} s", f"'paceline experiment show {now.name}' says how far it is"
                )
            threading.Event().wait(POLL_SECONDS)

    def extend_trial(self, experiment: str, steps: int, *, trial: int | None = None, name: str | None = None) -> Job:
        """Submit a job that goes on from the newest checkpoint of a trial, the best one unless `trial` names it, to `steps` steps in all."""
        return parsed(self._rest.create(f"{self._experiment_path(experiment)}/extend", {"steps": steps, "trial": trial, "name": name}), Job)

    def analyze(self, experiment: str) -> ExperimentAnalysis:
        """Analyze what the trials have measured by now, and return it."""
        return parsed(self._rest.create(f"{self._experiment_path(experiment)}/analyze", None), ExperimentAnalysis)

    def analysis(self, experiment: str) -> ExperimentAnalysis:
        """Return the newest analysis. Raises ApiProblemError where there is none yet."""
        return parsed(self._rest.get(f"{self._experiment_path(experiment)}/analysis"), ExperimentAnalysis)

    def export_experiment(
        self,
        experiment: str,
        file: str | Path,
        *,
        figure: str | None = None,
        x: str | None = None,
        y: str | None = None,
        value: str | None = None,
    ) -> Path:
        """Write the newest analysis to `file` and return its path; its suffix is the format: html, md, csv, json, or svg and png of a `figure`.

        `x`, `y` and `value` are of the figure `heatmap`: the axes across and down, such as `world_size`, and the measure, such as
        `samples_per_second`. Left out, those are taken that tell most.

        Raises UsageProblem for another suffix, and for svg and png without a figure.
        """
        target = Path(file)
        form = export_format(target, None, figure)
        download_export(self._rest, self._rest.experiment_id(experiment), target, form, ExportedFigure(figure, x, y, value))
        return target

    def _experiment_path(self, experiment: str) -> str:
        return f"/experiments/{self._rest.experiment_id(experiment)}"


def experiment_document_of(spec: Spec) -> dict[str, Any]:
    """Return an experiment as the coordinator takes it: of a mapping, of YAML text, or of the path of a file, as `document_of` tells them apart.

    Relative paths of its job are found from the file's folder, without a file from the working directory, and its requirements files are read. Raises
    UsageProblem where something cannot be read.
    """
    from paceline.cli.requirement_files import with_requirements

    if not isinstance(spec, Mapping | str | Path):
        raise UsageProblem(f"an experiment is a mapping, YAML text or the path of a file, and no {type(spec).__name__}")
    is_text = isinstance(spec, str) and ("\n" in spec or ": " in spec)
    file = "-" if is_text or isinstance(spec, Mapping) else str(spec)
    if isinstance(spec, Mapping):
        document = dict(spec)
    else:
        document = parse_spec(str(spec), "the experiment") if is_text else read_spec(file, [], KEYED_BY_PATH)
    job = document.get("job")
    return {**document, "job": with_requirements(in_its_folder(job, file), file)} if isinstance(job, dict) else document
