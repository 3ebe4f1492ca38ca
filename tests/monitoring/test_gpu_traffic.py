"""Rates of traffic from counters. The counters themselves are read in `test_gpu.py`."""

from __future__ import annotations

from paceline.monitoring.gpu_traffic import TrafficCounters, differences


def test_a_rate_is_the_difference_over_the_time_between() -> None:
    before, after = TrafficCounters(10.0, {"pcie_sent": 1_000.0}), TrafficCounters(12.0, {"pcie_sent": 5_000.0})
    assert differences(before, after) == {"pcie_sent": 2_000.0}


def test_a_counter_that_began_anew_or_that_is_new_has_no_rate() -> None:
    before = TrafficCounters(10.0, {"pcie_sent": 1_000.0})
    assert differences(before, TrafficCounters(11.0, {"pcie_sent": 5.0, "nvlink_sent": 7.0})) == {}


def test_two_readings_of_one_moment_have_no_rate() -> None:
    counters = TrafficCounters(10.0, {"pcie_sent": 1_000.0})
    assert differences(counters, counters) == {}
