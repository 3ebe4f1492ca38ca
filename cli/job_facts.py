"""What follows from a job as the coordinator tells of it: whether it has ended, how many ranks it has, how long it took to begin."""

from __future__ import annotations

from paceline.cli.api_types import Job
from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason

TIME_LIMIT = EndReason.TIME_LIMIT.value
TERMINAL_STATES = frozenset(state.value for state in TERMINAL_JOB_STATES)


def has_ended(job: Job) -> bool:
    return job.state in TERMINAL_STATES


def is_script(job: Job) -> bool:
    return job.strategy == "script"


def rank_count(job: Job) -> int:
    """Return how many ranks its newest generation has: a gang that lost some goes on with fewer than the job asks for."""
    if job.actual_world_size is not None:
        return job.actual_world_size
    return job.generations[-1].world_size if job.generations else job.world_size


def parked_rank_count(job: Job) -> int:
    """Return how many ranks live without a place in the world: spares, and those that are to join."""
    return sum(rank.parked and rank.state not in ("exited", "lost", "stopping") for rank in job.ranks)


def seconds_to_first_step(job: Job) -> float | None:
    """Return the seconds from submission to the first committed step, both by the coordinator's clock. None: there is no such step yet."""
    first = next((one.first_step_at for one in job.generations if one.first_step_at), None)
    return None if first is None else (first - job.created_at).total_seconds()


def warning_lines(job: Job) -> list[str]:
    """Return what the coordinator warned of when the job was submitted, a line each."""
    return [f"warning: {warning}" for warning in job.warnings]
