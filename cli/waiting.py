"""Waits for a job: for its slots, printing on stderr why as often as the reason changes, and for a state."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from paceline.cli.errors import CliError, WaitTimedOutError
from paceline.cli.job_facts import TERMINAL_STATES
from paceline.cli.output import note

if TYPE_CHECKING:
    from paceline.cli.api_types import Job
    from paceline.cli.client import RestClient

WAIT_POLL_S, STATE_POLL_S = 0.2, 0.5
#: The code of the reason that no end of another job removes.
NEVER_FITS = "cluster_too_small"


def wait_for_slots(client: RestClient, job: Job, ctrl_c: str, *, private: bool = False) -> None:
    """Return when `job` no longer waits. `ctrl_c`: what Ctrl-C does meanwhile, in words.

    Raises CliError where a job of a private coordinator never fits: no node will ever be added there."""
    said = ""
    while job.state == "queued":
        if job.pending is not None and job.pending.text != said:
            said = job.pending.text
            if private and job.pending.code == NEVER_FITS:
                raise CliError(f"this machine cannot run it: {said}", "ask for fewer ranks with --nproc-per-node")
            way_out = f" ({job.pending.next_step})" if job.pending.next_step else ""
            note(f"note: waiting: {said}{way_out}; Ctrl-C {ctrl_c}")
        threading.Event().wait(WAIT_POLL_S)
        job = client.job(job.id)


def wait_for_state(client: Any, job_id: str, wanted: set[str], timeout: float) -> Any:
    """Wait until the job is in one of the `wanted` states, or has ended. Returns its document; raises WaitTimedOutError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        document = client.job_document(job_id)
        if document["state"] in wanted | TERMINAL_STATES:
            return document
        if time.monotonic() >= deadline:
            raise WaitTimedOutError(f"{job_id} is still {document['state']} after {timeout:g} s", f"'paceline show {job_id}' says why")
        threading.Event().wait(STATE_POLL_S)
