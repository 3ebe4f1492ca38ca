"""Fits find the speeds that made the steps, are not led astray by a few wild ones, and are refused where trials say too little."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from paceline.parallelism.planning.cost.errors import TooFewTrialsError
from paceline.parallelism.planning.cost.fit import fit, leave_half_out, told
from tests.parallelism.planning.cost.machines import START, TRUTH, large, measured, setups


def test_a_fit_finds_the_speeds_that_made_the_steps() -> None:
    found = fit(measured(), START)
    assert found.worst_error < 0.02
    assert found.speeds.flops_per_second["fp32"] == pytest.approx(TRUTH.flops_per_second["fp32"], rel=0.15)
    assert found.speeds.machines.within.bytes_per_second == pytest.approx(TRUTH.machines.within.bytes_per_second, rel=0.1)
    assert found.speeds.machines.slowdown_beside_others == pytest.approx(1.2, rel=0.1)
    assert found.speeds.machines.tensor_overhead_seconds == pytest.approx(TRUTH.machines.tensor_overhead_seconds, rel=0.15)
    assert found.speeds.machines.tensor_slowdown == pytest.approx(TRUTH.machines.tensor_slowdown, rel=0.15)
    assert found.speeds.machines.gather_slowdown == pytest.approx(TRUTH.machines.gather_slowdown, rel=0.15)


def test_what_tensor_parallelism_costs_in_python_is_no_latency_of_a_pipeline() -> None:
    """Seen with real steps: each sum took 9 ms, most of it no message, and pipelines were told 40 % too slow."""
    plans = measured()
    pipelines = [plan for plan in plans if plan.setup.degrees.pipeline > 1]
    seen = [plan for plan in plans if plan.setup.degrees.pipeline == 1]
    speeds = fit(seen, START).speeds
    assert max(abs(told(plan, speeds).error) for plan in pipelines) < 0.1


def test_a_fit_tells_models_that_it_has_not_seen() -> None:
    speeds, shape = fit(measured(), START).speeds, large(6, 2)
    for setup in setups():
        assert speeds.predict(shape, setup).seconds == pytest.approx(TRUTH.predict(shape, setup).seconds, rel=0.05)


def test_wild_trials_do_not_lead_a_fit_astray() -> None:
    plans = measured()
    wild = [replace(plan, seconds=3 * plan.seconds) if index % 10 == 3 else plan for index, plan in enumerate(plans)]
    speeds = fit(wild, START).speeds
    errors = [abs(told(plan, speeds).error) for plan in plans]
    assert sorted(errors)[len(errors) // 2] < 0.05


def test_each_plan_is_told_by_a_fit_that_has_not_seen_it() -> None:
    drawn = random.Random(1)
    noisy = [replace(plan, seconds=plan.seconds * drawn.uniform(0.95, 1.05)) for plan in measured()]
    steps = leave_half_out(noisy, START)
    assert [step.measured for step in steps] == noisy
    assert sorted(abs(step.error) for step in steps)[len(steps) // 2] < 0.05
    wrong = [replace(noisy[0], seconds=10 * noisy[0].seconds), *noisy[1:]]
    assert leave_half_out(wrong, START)[0].error == pytest.approx(-0.9, abs=0.03)  # it had no say in its own fit


def test_too_few_trials_are_refused() -> None:
    with pytest.raises(TooFewTrialsError, match="3 different configurations were measured, and a fit needs 4; measure 1 more"):
        fit(measured()[:3], START)


def test_few_trials_free_few_parameters_and_leave_the_others_at_their_defaults() -> None:
    found = fit(measured()[:4], START)
    assert found.fitted == ("rate of products in fp32", "bandwidth within a machine")
    assert found.speeds.machines.layer_overhead_seconds == START.machines.layer_overhead_seconds
