"""Changes to a job that other users may be changing too, and how a change reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paceline.cli.errors import ApiProblemError
from paceline.cli.render.output import note

if TYPE_CHECKING:
    from paceline.cli.api_types import Experiment, Job

CHANGE_ATTEMPTS = 5
#: What each change is called while it is made, and the state that is its end.
CHANGES = {
    "pause": ("Pausing", "paused"),
    "resume": ("Resuming", "running"),
    "resize": ("Resizing", ""),
    "cancel": ("Cancelling", "cancelled"),
}


def change_job(client: Any, job_id: str, verb: str, body: Any = None) -> Any:
    """Read the revision, then change the job; begin again, a few times, when another change came first (412)."""
    for left in reversed(range(CHANGE_ATTEMPTS)):
        revision = client.job(job_id).revision
        try:
            if verb == "cancel":
                return client.delete(f"/training/jobs/{job_id}", revision)
            return client.put(f"/training/jobs/{job_id}/{verb}", revision, body)
        except ApiProblemError as error:
            if error.status != 412 or left == 0:
                raise
            note(f"{job_id} changed meanwhile; trying again")
    raise AssertionError("unreachable: the last attempt returns or raises")


def change_text(changed: Job | Experiment, verb: str) -> str:
    """How far a change is: "Pausing gpt (running)..." or "gpt is paused"."""
    gerund, done = CHANGES[verb]
    return f"{changed.name} is {changed.state}" if changed.state == done else f"{gerund} {changed.name} ({changed.state})..."
