"""When running jobs are expected to end, and who gets their slots then."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paceline.cluster.autoscaling.facts import ExpectedEnd, NodeFacts, PendingJob, PoolFacts, ScalingFacts
from paceline.cluster.autoscaling.forecast import EXIT_SECONDS, MOST_JOBS, MOST_MOMENTS, ExpectedStart, expected_end, expected_starts
from paceline.cluster.policy.placement import Request
from paceline.cluster.policy.views import JobView
from paceline.cluster.states import EndReason, Intent, JobState

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
POOL = PoolFacts("work", slots=2, max_nodes=9, launch_seconds=120.0)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def view(state: JobState = JobState.RUNNING, **known: Any) -> JobView:
    fields: dict[str, Any] = {"desired": Intent.RUN, "end_reason": None, "state_since": after(-60), "generation": 1}
    fields |= {"generation_since": after(-60), "generation_ended_at": None, "restarts": 0, "max_restarts": 3}
    return JobView(state=state, **fields | known)


@pytest.mark.parametrize(
    ("known", "last_step", "seconds"),
    [
        ({}, 30, 30 + EXIT_SECONDS),
        ({}, None, None),
        ({"time_limit": 100}, None, 40 + EXIT_SECONDS),
        ({"time_limit": 100, "ran_before": 30}, None, 10 + EXIT_SECONDS),
        ({"time_limit": 100}, 20, 20 + EXIT_SECONDS),
        ({"time_limit": 100}, -30, 40 + EXIT_SECONDS),  # its steps should be over by now, but it has a limit
        ({}, -30, None),
        ({"state": JobState.STARTING}, 30, None),
        ({"state": JobState.STARTING, "time_limit": 100}, None, 40 + EXIT_SECONDS),
        ({"generation_ended_at": NOW, "time_limit": 100}, 30, None),  # it starts again
        ({"time_limit": 70, "is_script": True, "grace_seconds": 20}, None, 10 + 20 + EXIT_SECONDS),
        ({"state": JobState.STOPPING, "state_since": NOW, "end_reason": EndReason.CANCELLED}, 500, EXIT_SECONDS),
        ({"state": JobState.STOPPING, "state_since": NOW, "end_reason": EndReason.RESIZED}, 500, None),
    ],
)
def test_a_job_ends_with_its_last_step_or_at_its_time_limit_as_far_as_these_are_known(
    known: dict[str, Any], last_step: float | None, seconds: float | None
) -> None:
    last_step_at = None if last_step is None else after(last_step)
    assert expected_end(view(**known), last_step_at, NOW) == (None if seconds is None else after(seconds))


def facts(*jobs: PendingJob, busy: int = 1, **known: Any) -> ScalingFacts:
    """`busy` full nodes of two slots, and jobs that wait for some."""
    nodes = [NodeFacts(f"n{number}", "work", 2, 0, None) for number in range(busy)]
    usual: dict[str, Any] = {"pools": [POOL], "nodes": nodes, "pending": jobs, "launching": {}}
    return ScalingFacts(**usual | known)


def waits(job_id: str, blocks: int = 2, waited: float = 60, **known: Any) -> PendingJob:
    fields: dict[str, Any] = {"slots_per_block": 1, "priority": 0}
    return PendingJob(Request(job_id, blocks, queued_at=after(-waited), **fields | known))


def ends(seconds: float, node: str = "n0", slots: int = 2) -> ExpectedEnd:
    return ExpectedEnd(f"on {node}", after(seconds), {node: slots})


def test_jobs_start_in_the_order_of_the_queue_once_running_ones_have_ended() -> None:
    jobs = waits("a"), waits("b", waited=90), waits("c", priority=1, waited=20)
    found = expected_starts(facts(*jobs, busy=3, expected_ends=[ends(50), ends(20, "n1"), ends(200, "n2")]), NOW)
    assert found == {"c": ExpectedStart(after(20), ("on n1",)), "b": ExpectedStart(after(50), ("on n0",))}


def test_a_wide_job_waits_for_several_and_is_passed_by_none_that_takes_its_slots() -> None:
    jobs = waits("wide", 4, waited=90), waits("small", 1)
    found = expected_starts(facts(*jobs, busy=2, expected_ends=[ends(50), ends(20, "n1")]), NOW)
    assert found == {"wide": ExpectedStart(after(50), ("on n0", "on n1"))}


def test_what_could_start_now_is_left_out_and_takes_its_slots() -> None:
    free = NodeFacts("free", "work", 2, 2, NOW)
    known = facts(waits("a", waited=90), waits("b"), expected_ends=[ends(50)])
    assert expected_starts(replace(known, nodes=[*known.nodes, free]), NOW) == {"b": ExpectedStart(after(50), ("on n0",))}


def test_a_node_that_is_under_way_comes_as_late_as_one_that_is_launched_now() -> None:
    found = expected_starts(facts(waits("a", waited=90), waits("b"), launching={"work": 1}, expected_ends=[ends(50)]), NOW)
    assert found == {"a": ExpectedStart(after(50), ("on n0",)), "b": ExpectedStart(after(120))}


def test_many_ends_are_looked_at_together_and_none_before_it_has_come() -> None:
    count = 10 * MOST_MOMENTS
    jobs = [waits(f"j{number:03d}", waited=count - number) for number in range(count)]
    found = expected_starts(facts(*jobs, busy=count, expected_ends=[ends(1 + number, f"n{number}") for number in range(count)]), NOW)
    assert len(found) == count
    assert len({start.at for start in found.values()}) == MOST_MOMENTS
    assert all(after(1 + number) <= found[f"j{number:03d}"].at for number in range(count))


def test_nothing_is_predicted_far_back_in_the_queue() -> None:
    jobs = [waits(f"j{number:03d}", waited=999 - number) for number in range(MOST_JOBS + 5)]
    count = len(jobs)
    found = expected_starts(facts(*jobs, busy=count, expected_ends=[ends(5, f"n{number}") for number in range(count)]), NOW)
    assert len(found) == MOST_JOBS
