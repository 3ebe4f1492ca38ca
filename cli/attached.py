"""A job that belongs to the terminal it was started from: its log is printed to the end, and Ctrl-C cancels it."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

from paceline.cli.answers import parsed
from paceline.cli.api_types import Job
from paceline.cli.errors import ApiProblemError, UnreachableError
from paceline.cli.follow import LogFilter, follow_log
from paceline.cli.interrupts import deferred
from paceline.cli.job_changes import change_job
from paceline.cli.job_facts import has_ended, warning_lines
from paceline.cli.render.formats import printed_line
from paceline.cli.render.output import note, print_line, shows_colours
from paceline.cli.waiting import PATIENT_RETRIES, patient, wait_for_slots

if TYPE_CHECKING:
    from paceline.cli.client import RestClient

#: For a coordinator that is not started again.
PRIVATE_RETRIES = 2


class AttachedJob:
    """A job of this terminal. `ranks`: those whose lines are printed, as `0,3`; None: all. `private`: the coordinator is there for this
    job alone."""

    def __init__(self, client: RestClient, *, ranks: str | None, to_stderr: bool, private: bool) -> None:
        self._client = client
        self._only = LogFilter(rank=ranks)
        self._show = note if to_stderr else print_line
        self._colours = shows_colours(sys.stderr if to_stderr else sys.stdout)
        self._private = private
        self._retries = PRIVATE_RETRIES if private else PATIENT_RETRIES
        self._printed = 0  # the seq of the last line
        self._job: Job | None = None

    def run(self, spec: dict[str, Any]) -> bool:
        """Submit the job and follow it to its end. Returns whether it got there without Ctrl-C. Raises KeyboardInterrupt at the second
        one."""
        try:
            with deferred():
                self._job = parsed(self._client.create("/training/jobs", spec), Job)
            place = "" if self._private else f": {self._client.job_page(self._job.id)}"  # a private coordinator ends with its job
            note(f"submitted {self._job.name} ({self._job.id}){place}; Ctrl-C cancels it", *warning_lines(self._job))
            wait_for_slots(self._client, self._job, "cancels the job", private=self._private, retries=self._retries)
            self._print_log(self._job)
        except KeyboardInterrupt:
            if self._job is None:
                raise
            self._cancel(self._job)
            return False
        return True

    def document(self) -> Any:
        """The job as it is now, as the coordinator gives it."""
        assert self._job is not None
        return patient(functools.partial(self._client.job_document, self._job.id), self._retries)

    def _print_log(self, job: Job) -> None:
        for entry in follow_log(self._client, job.id, self._printed, self._only, self._retries):
            self._printed = entry.seq
            self._show(printed_line(entry, colours=self._colours), colours=self._colours)

    def _cancel(self, job: Job) -> None:
        """Cancel the job, and print the rest of its log. A second Ctrl-C ends this wait, and so does the end of a private coordinator:
        Slurm sends SIGTERM to all processes at once."""
        note("", f"cancelling {job.name}; Ctrl-C again does not wait for its end")
        try:
            self._ask_to_cancel(job)
            self._print_log(job)
        except UnreachableError:
            if not self._private:
                raise
            raise KeyboardInterrupt from None

    def _ask_to_cancel(self, job: Job) -> None:
        try:
            change_job(self._client, job.id, "cancel")
        except ApiProblemError:
            if not has_ended(self._client.job(job.id)):
                raise
