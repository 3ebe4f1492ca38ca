"""What a job of any plan is held to."""

from __future__ import annotations

import pytest

from paceline.monitoring.points import STEP_PARTS
from paceline.training.link import Joined
from tests.gangs import Job, RankEnd


def assert_time_adds_up(end: RankEnd) -> dict[int, float]:
    """The parts of each step come to its time; the exposed communication of each."""
    curves = {part: end.curve(part) for part in STEP_PARTS}
    for step, seconds in end.curve("step_seconds").items():
        parts = [curve[step] for curve in curves.values()]
        assert sum(parts) == pytest.approx(seconds, rel=1e-6)
        assert min(parts) >= 0
    return curves["communication_seconds"]


def assert_a_killed_rank_ends_the_others(job: Job, ranks: int, killed: int) -> None:
    """At once: the gloo time-out is half an hour, the test's own is a minute."""
    gang = job.start(ranks)
    for rank in range(ranks):
        gang.until(rank, Joined)
    gang.kill(killed)
    results = [end.result for rank, end in enumerate(gang.wait()) if rank != killed]
    assert [result.failure.kind for result in results if result and result.failure] == ["peer_lost"] * (ranks - 1)
