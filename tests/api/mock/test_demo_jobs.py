"""The demo's jobs."""

from __future__ import annotations

from paceline.api.mock import people
from paceline.api.mock.demo_jobs import JOBS
from paceline.api.mock.nodes import NODES, SLOTS
from paceline.cluster.simulation.faults import not_understood
from paceline.training.spec.job import JobSpec


def test_every_job_is_valid_asks_for_real_faults_and_belongs_to_somebody_who_may_submit() -> None:
    for job in JOBS:
        spec = JobSpec.model_validate(job.spec)
        assert not_understood(spec.environment.variables) == []
        assert people.PEOPLE[job.owner] in ("admin", "member")


def test_all_but_one_of_them_find_room_at_once_and_leave_some_for_visitors() -> None:
    sizes = [JobSpec.model_validate(job.spec).world_size for job in JOBS]
    assert sum(size > NODES * SLOTS for size in sizes) == 1
    assert 0.6 < sum(size for size in sizes if size <= NODES * SLOTS) / (NODES * SLOTS) < 0.9
