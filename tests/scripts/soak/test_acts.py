"""A soak kills no rank that its resident job cannot do without."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from paceline.cli.api_types import Job, JobProgress, Rank
from scripts.soak.acts import spare_ranks


def job(state: str, *ranks: Rank) -> Job:
    return Job(
        id="j",
        name="resident",
        state=state,
        desired="run",
        progress=JobProgress(),
        world_size=2,
        generation=1,
        restarts=0,
        created_at=datetime(2026, 11, 27, tzinfo=UTC),
        strategy="fsdp",
        ranks=list(ranks),
    )


FIRST, SECOND = (Rank(rank=number, node_name="local", slot=0, state="running", pid=100 + number) for number in range(2))


def test_any_rank_of_a_whole_job_may_die() -> None:
    assert spare_ranks(job("running", FIRST, SECOND), 2) == [100, 101]


@pytest.mark.parametrize(
    "short",
    [
        job("running", FIRST),
        job("running", FIRST, replace(SECOND, parked=True)),
        job("running", FIRST, replace(SECOND, state="assigned")),
        job("running", FIRST, replace(SECOND, pid=None)),
        job("resizing", FIRST, SECOND),
    ],
)
def test_the_last_one_that_has_the_state_is_spared(short: Job) -> None:
    """Killed while another was about to join, it took the state along: the job may not restart, and had ended an hour before the soak."""
    assert spare_ranks(short, 2) == []
