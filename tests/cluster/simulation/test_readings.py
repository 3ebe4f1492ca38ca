"""The readings of simulated machines."""

from __future__ import annotations

import random

from paceline.cluster.simulation.machines import SimulatedMachine
from paceline.cluster.simulation.readings import INTERFACE, SlotLoad, gpu_samples, host_sample
from paceline.monitoring.readings import values_of

MACHINE = SimulatedMachine("sim-001", 4)


def test_a_busy_card_is_warm_full_and_draws_power_and_an_idle_one_is_not() -> None:
    idle, busy, waiting, _ = gpu_samples(MACHINE, {1: SlotLoad(0.9, 60 << 30, pid=7), 2: SlotLoad(0.0, 60 << 30)}, random.Random(1))
    for reading in ("utilization_percent", "memory_used_bytes", "temperature_celsius", "power_watts"):
        assert getattr(busy, reading) > 1.3 * getattr(idle, reading), reading
    assert idle.utilization_percent == 0 < (waiting.utilization_percent or 0) < 20
    assert busy.processes == {7: busy.memory_used_bytes}
    assert (busy.power_watts or 0) < MACHINE.card.power_limit_watts


def test_no_card_holds_more_than_it_has() -> None:
    (full, *_) = gpu_samples(MACHINE, {0: SlotLoad(1.0, 500 << 30)}, random.Random(1))
    assert full.memory_used_bytes == full.memory_total_bytes


def test_a_host_is_as_busy_as_its_slots() -> None:
    loads = {slot: SlotLoad(0.9, 1, sent_bytes_per_second=1e9) for slot in range(4)}
    idle, busy = host_sample(MACHINE, {}, random.Random(1)), host_sample(MACHINE, loads, random.Random(1))
    assert busy.cpu_percent > 5 * idle.cpu_percent
    assert (idle.network_sent_bytes_per_second, busy.network_sent_bytes_per_second) == (0, 4e9)
    assert busy.interfaces[INTERFACE].sent_bytes_per_second == 4e9


def test_a_job_on_one_node_sends_over_nvlink_and_not_over_the_network() -> None:
    loads = {slot: SlotLoad(0.9, 1, sent_bytes_per_second=1e9, leaves_node=False) for slot in range(4)}
    assert host_sample(MACHINE, loads, random.Random(1)).network_sent_bytes_per_second == 0
    assert {card.nvlink_sent_bytes_per_second for card in gpu_samples(MACHINE, loads, random.Random(1))} == {1e9}


def test_a_slow_card_is_one_whose_clock_is_held_down() -> None:
    fast, slow, *_ = gpu_samples(MACHINE, {0: SlotLoad(0.9, 1, slowness=1.01), 1: SlotLoad(0.9, 1, slowness=1.2)}, random.Random(1))
    assert (fast.sm_clock_mhz, slow.sm_clock_mhz) == (1980.0, 1650)
    values = values_of(None, [fast, slow])
    assert (values["gpu:0"]["throttled_by_heat"], values["gpu:1"]["throttled_by_heat"]) == (0.0, 1.0)
