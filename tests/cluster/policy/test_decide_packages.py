"""How long a job may take to start whose nodes get code or packages for it."""

from __future__ import annotations

from datetime import timedelta

from paceline.cluster.policy.decide import PREPARATION_SECONDS, START_SECONDS, decide
from paceline.cluster.policy.decisions import Restart
from paceline.cluster.policy.views import JobView, RankView
from paceline.cluster.states import JobState, RankState
from tests.cluster.policy.test_decide import ASSIGNED, NOW, RUNNING, job, rank


def preparing(*ranks: RankView, seconds: float) -> JobView:
    return job(JobState.STARTING, *ranks, needs_preparation=True, generation_since=NOW - timedelta(seconds=seconds))


def test_a_job_whose_nodes_get_code_or_packages_has_more_time_to_start() -> None:
    assert decide(preparing(RUNNING, ASSIGNED, seconds=START_SECONDS + 1), NOW) is None
    late = decide(preparing(RUNNING, ASSIGNED, seconds=START_SECONDS + PREPARATION_SECONDS), NOW)
    assert isinstance(late, Restart)
    assert late.why.startswith("rank 1 did not get its code or packages within 1920 s")


def test_once_they_have_their_packages_its_ranks_have_as_much_time_as_any() -> None:
    started = rank(1, RankState.STARTING, updated_at=NOW - timedelta(seconds=START_SECONDS - 1))
    assert decide(preparing(RUNNING, started, seconds=1000), NOW) is None
    first, second = (rank(number, RankState.STARTING, updated_at=NOW - timedelta(seconds=START_SECONDS)) for number in (0, 1))
    assert isinstance(decide(preparing(first, second, seconds=1000), NOW), Restart)
