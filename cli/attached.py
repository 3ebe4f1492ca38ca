"""A job that belongs to the terminal it was started from: its log is printed to the end, and Ctrl-C cancels it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from cli.commands.jobs import change_job
from cli.commands.logs import printed_line
from cli.errors import CliError, ProblemError, UnreachableError
from cli.follow import RETRIES, LogFilter, follow_log
from cli.interrupts import deferred
from cli.output import note, say
from cli.views import Job, view

if TYPE_CHECKING:
    from cli.client import Client

WAIT_POLL_S = 0.2
#: Of a coordinator that nobody starts again.
PRIVATE_RETRIES = 2
_NEVER_FITS = "cluster_too_small"


class AttachedJob:
    """`ranks`: whose lines are printed, as `0,3`; None: all. `private`: the coordinator is there for this job alone."""

    def __init__(self, client: Client, *, ranks: str | None, to_stderr: bool, private: bool) -> None:
        self._client = client
        self._only = LogFilter(rank=ranks)
        self._show = note if to_stderr else say
        self._private = private
        self._printed = 0  # the seq of the last line
        self._job: Job | None = None

    def run(self, spec: dict[str, Any]) -> bool:
        """Submit the job and follow it to its end; whether it got there without Ctrl-C. Raises KeyboardInterrupt at the second one."""
        try:
            with deferred():
                self._job = view(self._client.create("/training/jobs", spec), Job)
            note(f"submitted {self._job.name} ({self._job.id}); Ctrl-C cancels it")
            self._wait_for_slots(self._job)
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
        return self._client.job_document(self._job.id)

    def _wait_for_slots(self, job: Job) -> None:
        """Say why the job waits, as often as the reason changes. On a private coordinator nobody will ever make room."""
        said = ""
        while job.state == "queued":
            if job.pending is not None and job.pending.text != said:
                said = job.pending.text
                if self._private and job.pending.code == _NEVER_FITS:
                    raise CliError(f"this machine cannot run it: {said}", "ask for fewer ranks with --nproc-per-node")
                way_out = f" ({job.pending.next_step})" if job.pending.next_step else ""
                note(f"note: waiting: {said}{way_out}; Ctrl-C cancels the job")
            threading.Event().wait(WAIT_POLL_S)
            job = self._client.job(job.id)

    def _print_log(self, job: Job) -> None:
        for entry in follow_log(self._client, job.id, self._printed, self._only, PRIVATE_RETRIES if self._private else RETRIES):
            self._printed = entry.seq
            self._show(printed_line(entry))

    def _cancel(self, job: Job) -> None:
        """Cancel the job, and print what its ranks still say. A second Ctrl-C ends this wait, and so does the end of a private coordinator:
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
        except ProblemError:
            if not self._client.job(job.id).ended:
                raise
