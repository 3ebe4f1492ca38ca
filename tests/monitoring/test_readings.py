"""Readings of one second, and the records that carry some of them."""

from __future__ import annotations

import pytest

from paceline.monitoring.readings import CARD_METRICS, HOST_METRICS, NETWORK_METRICS, Reading, metrics_of, record_of, values_of
from paceline.monitoring.samples import GpuSample, HostSample, InterfaceRates

HOST = HostSample(
    cpu_percent=50.0,
    memory_used_bytes=7,
    memory_total_bytes=9,
    disk_used_bytes=1,
    disk_total_bytes=2,
    network_sent_bytes_per_second=1.0,
    network_received_bytes_per_second=1.0,
    load_1m=0.5,
    interfaces={"eth0": InterfaceRates(sent_bytes_per_second=3.0, received_bytes_per_second=4.0)},
)


def test_what_is_not_told_is_absent_and_never_zero() -> None:
    found = values_of(HOST, [GpuSample(index=2, uuid="GPU-2", power_watts=300.0)])
    assert found["gpu:2"] == {"power_watts": 300.0}
    assert found["net:eth0"] == {"sent_bytes_per_second": 3.0, "received_bytes_per_second": 4.0}
    assert "disk_read_bytes_per_second" not in found["host"]


def test_what_holds_the_clocks_down_is_a_share_of_time_by_kind() -> None:
    hot = GpuSample(
        index=0, uuid="GPU-0", sm_clock_mhz=1_000, throttle_reasons=("hardware_thermal_slowdown", "applications_clocks_setting")
    )
    found = values_of(None, [hot])["gpu:0"]
    assert (found["throttled_by_heat"], found["throttled_by_power"], found["throttled_otherwise"]) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("reasons", "power", "heat", "otherwise"),
    [
        (("hardware_slowdown", "hardware_thermal_slowdown"), 0.0, 1.0, 0.0),  # NVML names the slowdown beside its cause
        (("hardware_slowdown", "hardware_power_brake"), 1.0, 0.0, 0.0),
        (("hardware_slowdown",), 0.0, 0.0, 1.0),
        (("hardware_slowdown", "software_power_cap"), 1.0, 0.0, 1.0),
    ],
)
def test_a_slowdown_of_the_hardware_counts_once_by_its_cause(reasons: tuple[str, ...], power: float, heat: float, otherwise: float) -> None:
    found = values_of(None, [GpuSample(index=0, uuid="GPU-0", sm_clock_mhz=1_000, throttle_reasons=reasons)])["gpu:0"]
    assert (found["throttled_by_power"], found["throttled_by_heat"], found["throttled_otherwise"]) == (power, heat, otherwise)


def test_a_lost_card_and_a_host_that_was_not_read_have_no_values() -> None:
    assert values_of(None, [GpuSample(index=0, uuid="GPU-0", error="GPU is lost")]) == {}


def test_a_record_has_a_value_or_none_for_each_second() -> None:
    record = record_of(4, [Reading(1.0, {"gpu:0": {"power_watts": 5.0}}), Reading(2.0, {"host": {"load_1m": 1.0}})])
    assert record.times == [1.0, 2.0]
    assert record.columns == {"gpu:0": {"power_watts": [5.0, None]}, "host": {"load_1m": [None, 1.0]}}


def test_metrics_are_those_of_the_kind_of_subject() -> None:
    assert metrics_of("host") is HOST_METRICS
    assert metrics_of("gpu:12") is CARD_METRICS
    assert metrics_of("net:eth0") is NETWORK_METRICS
    assert metrics_of("gpu:x") == metrics_of("fan:0") == {}
