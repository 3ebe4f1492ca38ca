"""What sums cost by two probes of each, and what that says of a link. Worked out by hand."""

from __future__ import annotations

from dataclasses import astuple

import pytest

from paceline.parallelism.communication.choices import ReductionChoice
from paceline.parallelism.communication.sum_cost import GradientBytes, SumCost, cost_of, link_of, predicted_sums


def test_two_probes_tell_latency_and_time_for_each_byte() -> None:
    cost = cost_of((1_000, 0.011), (1_001_000, 0.111))
    assert astuple(cost) == pytest.approx((0.0109, 1e-7))
    assert cost.of(2_000_000, messages=3) == pytest.approx(3 * 0.0109 + 0.2)


def test_noise_makes_nothing_negative() -> None:
    assert astuple(cost_of((1_000, 0.02), (1_000_000, 0.01))) == pytest.approx((0.0, 1e-8))
    assert cost_of((1_000, 0.0), (1_000_000, 0.01)).latency == 0.0


def test_a_ring_of_four_sends_one_and_a_half_times_its_bytes_in_six_messages() -> None:
    assert astuple(link_of(SumCost(0.006, 1.5e-8), 4)) == pytest.approx((0.001, 1e8))
    assert astuple(link_of(SumCost(0.002, 1e-8), 2, sharers=3)) == pytest.approx((0.001, 3e8))


def test_what_is_always_sent_whole_goes_by_the_exact_sum() -> None:
    costs = {
        ReductionChoice(): SumCost(0.001, 1e-6),
        ReductionChoice("backend", "bf16"): SumCost(0.001, 5e-7),
        ReductionChoice("backend", "top_k"): SumCost(0.002, 1e-8),
    }
    found = predicted_sums(costs, GradientBytes(compressible=1_000_000, whole=100_000, buckets=2))
    assert list(found.values()) == pytest.approx([0.002 + 1.1, 0.002 + 0.55, (0.002 + 0.1) + (0.004 + 0.01)])


def test_without_an_exact_sum_by_the_same_algorithm_what_is_sent_whole_goes_by_another_one() -> None:
    costs = {ReductionChoice("ring"): SumCost(0.001, 1e-6), ReductionChoice("backend", "top_k"): SumCost(0.002, 1e-8)}
    found = predicted_sums(costs, GradientBytes(compressible=1_000_000, whole=100_000, buckets=1))
    assert found[ReductionChoice("backend", "top_k")] == pytest.approx((0.001 + 0.1) + (0.002 + 0.01))
