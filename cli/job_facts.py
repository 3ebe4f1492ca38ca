"""What follows from a job as the coordinator tells of it: whether it has ended, how many ranks it has, how long it took to begin."""

from __future__ import annotations

from typing import Any

from paceline.cli.api_types import DataRemoval, Job
from paceline.cli.git_facts import MOST_CHANGED
from paceline.cluster.states import TERMINAL_JOB_STATES, EndReason, JobState
from paceline.monitoring.words import plural

#: Requirements that are shown beside a job.
MOST_PACKAGES = 8
#: How a script that has no curve gets one.
WAY_TO_CURVES = "curves of a script come from paceline.log(step, loss=...), TensorBoard files and printed lines such as 'step 120 loss 2.31' (docs/scripts.md)"
TIME_LIMIT = EndReason.TIME_LIMIT.value
JOB_STATES = tuple(state.value for state in JobState)
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


def removal_words(removal: DataRemoval) -> str:
    """Return how far the deletion of a job's data is, and which user asked for it: "was deleted: ada asked for it"."""
    return f"{'was deleted' if removal.state == 'removed' else 'is being deleted'}: {removal.asked_by} asked for it"


def warning_lines(job: Job) -> list[str]:
    """Return what the coordinator warned of when the job was submitted, a line each."""
    return [f"warning: {warning}" for warning in job.warnings]


def code_origin(section: dict[str, Any]) -> list[tuple[str, str]]:
    """Return where the code of a job came from, by the `environment.code` of its spec, in lines."""
    commit, changed = section.get("commit"), section.get("uncommitted") or []
    if commit is None:
        return [("bundle", section["bundle"][:12])]
    branch = f" on {section['branch']}" if section.get("branch") else ""
    dirty = (
        f", and {plural(len(changed), 'file')}{' or more' if len(changed) >= MOST_CHANGED else ''} that differed: {', '.join(changed[:3])}{' ...' if len(changed) > 3 else ''}"
        if changed
        else ""
    )
    return [("bundle", section["bundle"][:12]), ("commit", f"{commit[:12]}{branch}{dirty}")]


def packages_of(environment: dict[str, Any]) -> list[tuple[str, str]]:
    """Return which packages the ranks of a job have besides the nodes' own, by the `environment` of its spec, in lines."""
    requirements = environment.get("requirements") or []
    more = f" and {len(requirements) - MOST_PACKAGES} more" if len(requirements) > MOST_PACKAGES else ""
    installed = f"{', '.join(requirements[:MOST_PACKAGES])}{more}{', with a torch of its own' if environment.get('own_torch') else ''}"
    found = [("packages", installed)] if requirements else []
    return [*found, *((name, environment[name]) for name in ("python", "image") if environment.get(name))]
