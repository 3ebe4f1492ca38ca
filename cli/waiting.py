"""Prints on stderr why a followed job waits for its slots, as often as the reason changes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from paceline.cli.errors import CliError
from paceline.cli.output import note

if TYPE_CHECKING:
    from paceline.cli.api_types import Job
    from paceline.cli.client import Client

WAIT_POLL_S = 0.2
#: The code of the reason that no end of another job removes.
NEVER_FITS = "cluster_too_small"


def wait_for_slots(client: Client, job: Job, ctrl_c: str, *, private: bool = False) -> None:
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
