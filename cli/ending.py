"""How a job ended, in one sentence."""

from __future__ import annotations

from paceline.cli.api_types import Job
from paceline.cli.details import more_time
from paceline.cli.job_facts import TIME_LIMIT, has_ended
from paceline.cli.render import failures


def ending(job: Job) -> str:
    """Return one sentence on the state of a job."""
    if job.failure is not None and job.state == "failed":
        failure, predicate = job.failure, failures.predicate(job.failure)
        if predicate:
            return f"{job.name} failed: rank {failure.rank} ({failure.node_name}) {predicate}"
        error, line = failures.error_name(failure), failures.first_line(failure)
        return f"{job.name} failed: {error} on rank {failure.rank} ({failure.node_name}): {line}"
    verb = {"cancelled": "was cancelled", "completed": "completed", "failed": "failed"}.get(job.state, f"is {job.state}")
    reason = f" ({job.end_reason})" if job.end_reason and job.end_reason != job.state else ""
    step = f" at step {job.progress.step}" if job.progress.step or job.model != "script" else ""  # a script need not tell of steps
    way_out = f"; {more_time(job)}" if has_ended(job) and job.end_reason == TIME_LIMIT else ""
    return f"{job.name} {verb}{reason}{step}{way_out}"
