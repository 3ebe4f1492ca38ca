"""What `paceline.Client` reads of jobs, and how it files, compares and cleans them up. A part of the client, in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

from paceline.cli.answers import parsed
from paceline.cli.api_types import (
    Artifact,
    ComparisonReport,
    DataRemoval,
    Goodput,
    Incident,
    Job,
    JobGradients,
    JobStacks,
    LeftFile,
    Performance,
    RequestedGradients,
    Storage,
)
from paceline.cli.client import RestClient
from paceline.cli.errors import UsageProblem
from paceline.cli.job_files import download_files, files_at


class JobMethods:
    """The methods of a client that look into jobs and file them, by their id or name."""

    _rest: RestClient

    def jobs(
        self,
        *,
        status: str | None = None,
        project: str | None = None,
        user: str | None = None,
        model: str | None = None,
        name: str | None = None,
        search: str | None = None,
        labels: Mapping[str, str] | None = None,
        experiment: str | None = None,
        trials: str = "include",
        created_after: datetime | None = None,
        created_before: datetime | None = None,
        archived: str = "exclude",
        sort: str = "-created_at",
        limit: int | None = None,
    ) -> list[Job]:
        """Return jobs, the newest first unless `sort` says otherwise (`name`, `-priority`, ...).

        `status`, `project`, `user` and `model` may name several, separated by commas; `name` is a whole name, `search` a part of one, of a label or
        of a note. `experiment`: jobs of its trials, by its id or name. `trials` of experiments and `archived` jobs: exclude, include or only.
        Moments need a time zone.
        """
        filters = {"status": status, "project": project, "user": user, "model": model, "name": name, "q": search, "experiment": experiment}
        filters |= {"created_after": _moment("created_after", created_after), "created_before": _moment("created_before", created_before)}
        filters |= {f"label.{key}": value for key, value in (labels or {}).items()}
        found = self._rest.pages(
            "/training/jobs",
            limit,
            **filters,
            trials=None if trials == "include" else trials,
            archived=None if archived == "exclude" else archived,
            sort=None if sort == "-created_at" else sort,
        )
        return [parsed(document, Job) for document in found]

    def edit(
        self,
        job: str,
        *,
        name: str | None = None,
        project: str | None = None,
        priority: int | None = None,
        notes: str | None = None,
        labels: Mapping[str, str | None] | None = None,
    ) -> Job:
        """Change what the job is filed under, whatever it does. `labels`: those to add or change, and with None those to remove.

        Raises UsageProblem where nothing is to be changed.
        """
        asked: dict[str, Any] = {"name": name, "project": project, "priority": priority, "notes": notes, "labels": labels and dict(labels)}
        changes = {field: value for field, value in asked.items() if value is not None}
        if not changes:
            raise UsageProblem("edit needs something to change", f"for example: edit({job!r}, priority=80)")
        return parsed(self._rest.patch(self._job_path(job), changes), Job)

    def archive(self, job: str) -> Job:
        """Hide an ended job from lists. Nothing of it is deleted."""
        return parsed(self._rest.put(f"{self._job_path(job)}/archive"), Job)

    def unarchive(self, job: str) -> Job:
        """Bring an archived job back into lists."""
        return parsed(self._rest.put(f"{self._job_path(job)}/unarchive"), Job)

    def delete_data(self, job: str, *, checkpoints: bool = False) -> DataRemoval:
        """Delete what an ended job has recorded, for good.

        That is points, curves, log lines, traces, gradients, media and all files of `$PACELINE_ARTIFACTS`; with `checkpoints` these too."""
        return parsed(self._rest.delete(f"{self._job_path(job)}/data", checkpoints=checkpoints), DataRemoval)

    def incidents(self, job: str) -> list[Incident]:
        """Return the job's faults, the oldest first: the culprit of each, how long recovery took, what was lost and why."""
        return parsed(self._rest.get(f"{self._job_path(job)}/incidents"), list[Incident])

    def goodput(self, job: str) -> Goodput:
        """Return how the time was spent in which the job held slots."""
        return parsed(self._rest.get(f"{self._job_path(job)}/goodput"), Goodput)

    def performance(self, job: str) -> Performance:
        """Return the job's speed, its parts of a step, MFU, bytes sent and memory."""
        return parsed(self._rest.get(f"{self._job_path(job)}/performance"), Performance)

    def compare(self, *jobs: str) -> ComparisonReport:
        """Compare two or more runs bit for bit, the first with each other one. Raises UsageProblem for fewer than two jobs."""
        ids = list(dict.fromkeys(map(self._rest.job_id, jobs)))
        if len(ids) < 2:
            raise UsageProblem(f"{', '.join(jobs) or 'nothing'}: that is not two jobs", "compare takes two or more, by id or name")
        return parsed(self._rest.get("/training/compare", jobs=",".join(ids)), ComparisonReport)

    def stacks(self, job: str, *, ranks: Sequence[int] | None = None) -> JobStacks:
        """Return where the ranks of a running job are in their Python code; `ranks`: only these."""
        wanted = None if ranks is None else ",".join(map(str, ranks))
        return parsed(self._rest.get(f"{self._job_path(job)}/stacks", rank=wanted), JobStacks)

    def gradients(self, job: str) -> JobGradients:
        """Return the steps at which the job's ranks have recorded their own gradients."""
        return parsed(self._rest.get(f"{self._job_path(job)}/gradients"), JobGradients)

    def record_gradients(self, job: str, *, names: Sequence[str] = ("*",), snapshots: bool = False) -> RequestedGradients:
        """Have all ranks of a running job record their gradients of its next step, and return the request; `gradients` says how far it is.

        `names` are patterns for names of parameters. With `snapshots` the gradients themselves are kept too."""
        order = {"names": list(names), "snapshots": snapshots}
        return parsed(self._rest.create(f"{self._job_path(job)}/gradients", order), RequestedGradients)

    def artifacts(self, job: str) -> list[Artifact]:
        """Return the traces that the job has left, with their states."""
        return [parsed(document, Artifact) for document in self._rest.pages(f"{self._job_path(job)}/artifacts")]

    def files(self, job: str, path: str = "") -> list[LeftFile]:
        """Return the files that the job has left in `$PACELINE_ARTIFACTS`; `path`: of this folder and those below it, or this one file.

        Raises NotThereError where there are none."""
        return files_at(self._rest, self._rest.job_id(job), path)

    def download(self, job: str, path: str = "", *, into: str | PathLike[str] = "artifacts") -> list[Path]:
        """Download the file or the folder `path` of what the job has left, or all of it, into the folder `into`. Return where the files are.

        Each is compared with its SHA-256; what is there already is left, and a download that broke off goes on. Raises NotThereError where there is
        no such file, and OSError where one cannot be written."""
        return [each.path for each in download_files(self._rest, self._rest.job_id(job), path, Path(into))]

    def storage(self) -> Storage:
        """Return what is stored of jobs, and how much disk is left."""
        return parsed(self._rest.get("/cluster/storage"), Storage)

    def _job_path(self, job: str) -> str:
        return f"/training/jobs/{self._rest.job_id(job)}"


def _moment(name: str, given: datetime | None) -> str | None:
    """Return a time as the API reads it. Raises UsageProblem for one without a zone, which means another moment on another machine."""
    if given is None:
        return None
    if given.tzinfo is None:
        raise UsageProblem(f"{name}={given.isoformat()} has no time zone", "pass an aware datetime, such as datetime.now(UTC)")
    return given.isoformat()
