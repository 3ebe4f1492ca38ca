"""Six faults of six kinds on one running job, and the same job left alone: nobody but the clock can tell the two apart.

The same run in full, sixty faults in half an hour, is `make chaos`.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from scripts.chaos.campaign import chaos
from scripts.chaos.run import Run
from scripts.chaos.verdict import Verdict, judge

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600), pytest.mark.release]

SEED = 2026
FAULTS = 6
STEPS_BETWEEN = 24


@dataclass(frozen=True)
class Campaign:
    run: Run
    control: Run
    verdict: Verdict


@pytest.fixture(scope="module")
def campaign() -> Campaign:
    run, control = chaos(SEED, FAULTS, STEPS_BETWEEN)
    return Campaign(run, control, judge(run, control))


def test_every_fault_was_dealt_and_the_gang_went_on_each_time(campaign: Campaign) -> None:
    assert (campaign.verdict.faults, campaign.run.hangs, campaign.run.restarts) == (FAULTS, [], 0)


def test_no_step_is_lost_and_none_is_done_twice(campaign: Campaign) -> None:
    assert campaign.verdict.steps_lost == 0
    assert campaign.verdict.told_once
    assert campaign.verdict.samples_once, campaign.run.samples


def test_never_were_two_memberships_at_work(campaign: Campaign) -> None:
    assert campaign.verdict.split_brains == 0


def test_survivors_keep_their_processes(campaign: Campaign) -> None:
    assert campaign.verdict.moved == (), campaign.run.struck


def test_every_fault_that_cost_a_rank_is_an_incident_and_nothing_else_is(campaign: Campaign) -> None:
    assert campaign.verdict.incidents == campaign.verdict.faults_with_incident > 0, campaign.run.incidents
    assert {incident["action"] for incident in campaign.run.incidents} == {"closed_up"}


def test_the_curve_is_the_undisturbed_one_to_the_last_bit(campaign: Campaign) -> None:
    assert campaign.verdict.first_difference is None
    assert campaign.verdict.compared >= FAULTS * STEPS_BETWEEN
    assert campaign.verdict.broken == []
