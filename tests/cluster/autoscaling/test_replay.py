"""A week of jobs under the autoscaler, beside nodes that are always on and beside an oracle."""

from __future__ import annotations

import pytest

from paceline.cluster.autoscaling.facts import PoolFacts
from paceline.cluster.autoscaling.replay import Replay, replay_always_on, replay_oracle
from paceline.cluster.autoscaling.trace import DAY_SECONDS, TracedJob, arrival_share, week

POOL = PoolFacts("work", slots=8, max_nodes=6, launch_seconds=120.0)


def test_the_same_seed_is_the_same_trace_and_weekends_are_quiet() -> None:
    jobs = week(3)
    assert jobs == week(3)
    assert jobs != week(4)
    weekend = [job for job in jobs if job.arrives >= 5 * DAY_SECONDS]
    assert 0 < len(weekend) < len(jobs) / 8
    assert arrival_share(14.5 * 3600) == pytest.approx(1.0)


def test_it_costs_far_less_than_always_on_and_waits_are_those_of_launches() -> None:
    jobs = week(1, jobs_per_working_hour=5.0, days=1)
    scaled, on, oracle = Replay(POOL, jobs).run(), replay_always_on(POOL, jobs), replay_oracle(POOL, jobs)
    assert scaled.left == on.left == oracle.left == 0
    assert scaled.used_slot_hours == pytest.approx(on.used_slot_hours)
    assert oracle.slot_hours <= scaled.slot_hours < 0.8 * on.slot_hours
    assert on.median_wait <= scaled.median_wait <= on.median_wait + POOL.launch_seconds + 30
    assert scaled.most_nodes <= POOL.max_nodes


def test_jobs_that_come_now_and_then_make_no_node_flap() -> None:
    """A job each four minutes: its node is kept, since a pool keeps an idle one for five."""
    jobs = [TracedJob(f"j{number}", 240.0 * number, 8, 60.0, 0) for number in range(60)]
    replay = Replay(POOL, jobs)
    assert replay.run().launches == 1
    assert [len(decision.drains) for _, decision in replay.decisions] == [0, 1]


def test_known_ends_spare_nodes_that_would_come_too_late() -> None:
    """Jobs come in pairs, and the second of each gets the slots of the first sooner than a node."""
    jobs = [TracedJob(f"j{number}", 3600.0 * (number // 2) + 200 * (number % 2), 8, 150.0, 0) for number in range(20)]
    known, unknown = Replay(POOL, jobs).run(), Replay(POOL, jobs, known_ends=0.0).run()
    assert (known.launches, unknown.launches) == (10, 20)
    assert known.mean_wait <= unknown.mean_wait


def test_a_job_that_no_pool_can_hold_ends_the_replay_and_is_counted() -> None:
    wide = TracedJob("wide", 0.0, 1000, 60.0, 0)
    result = Replay(POOL, [wide]).run()
    assert (result.left, result.launches) == (1, 0)
