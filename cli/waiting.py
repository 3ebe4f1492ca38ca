"""Waits: for a coordinator that is away, for a job's slots, printing on stderr why as often as the reason changes, and for its state."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from paceline.cli.errors import ApiProblemError, CliError, UnreachableError, WaitTimedOutError
from paceline.cli.job_facts import TERMINAL_STATES
from paceline.cli.render.output import note

if TYPE_CHECKING:
    from paceline.cli.api_types import Job
    from paceline.cli.client import RestClient

Answer = TypeVar("Answer")

#: How long a coordinator may be away.
PATIENT_RETRIES, PATIENT_SECONDS = 60, 1.0
WAIT_POLL_S, STATE_POLL_S = 0.2, 0.5
#: The code of the reason that no end of another job removes.
NEVER_FITS = "cluster_too_small"


def patient(ask: Callable[[], Answer], retries: int = PATIENT_RETRIES) -> Answer:
    """Ask a coordinator that may be away for a while, `retries` times a second apart."""
    for _ in range(retries):
        try:
            return ask()
        except UnreachableError:
            pass
        except ApiProblemError as error:
            if not error.is_passing:
                raise
        threading.Event().wait(PATIENT_SECONDS)
    return ask()


def wait_for_slots(client: RestClient, job: Job, ctrl_c: str, *, private: bool = False, retries: int = PATIENT_RETRIES) -> None:
    """Return when `job` no longer waits. `ctrl_c`: what Ctrl-C does meanwhile, in words. `retries`: as of `patient`.

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
        job = patient(functools.partial(client.job, job.id), retries)


def wait_for_state(client: Any, job_id: str, wanted: set[str], timeout: float) -> Any:
    """Wait until the job is in one of the `wanted` states, or has ended. Returns its document; raises WaitTimedOutError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    look = functools.partial(client.job_document, job_id)
    document = look()
    while document["state"] not in wanted | TERMINAL_STATES:
        left = deadline - time.monotonic()
        if left <= 0:
            raise WaitTimedOutError(f"{job_id} is still {document['state']} after {timeout:g} s", f"'paceline show {job_id}' says why")
        threading.Event().wait(STATE_POLL_S)
        document = patient(look, min(PATIENT_RETRIES, int(left / PATIENT_SECONDS)))
    return document
