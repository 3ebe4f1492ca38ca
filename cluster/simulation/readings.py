"""What simulated machines measure of themselves: cards and hosts, from what their slots are at. Pure but for its draws."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.cluster.protocol import GpuSample, HostSample
from paceline.cluster.simulation.machines import GIBIBYTE, SimulatedMachine
from paceline.monitoring.samples import InterfaceRates

#: The utilization of a card that waits for other ranks, or is about to start.
WAITING_PERCENT = 8.0
IDLE_CELSIUS, FULL_CELSIUS = 31.0, 74.0
IDLE_CLOCK_MHZ = 345.0
#: A card that takes so many times as long as the model says is one that is too warm: its clock is held down.
THROTTLED_SLOWNESS = 1.1
#: What a card that computes all the time moves in each direction: batches, and what is launched.
PCIE_BYTES_PER_SECOND = 6e7
#: The node's adapters as one, and what its disks read for each busy slot.
INTERFACE = "bond0"
READ_BYTES_PER_SECOND = 4e7
DISK_BYTES = 7 << 40


@dataclass(frozen=True)
class SlotLoad:
    """The load that a rank puts on its card: the share of the time in which it computes, and the bytes that it holds there."""

    computing: float
    memory_bytes: int
    sent_bytes_per_second: float = 0.0  # to other ranks
    leaves_node: bool = True  # some of these are on other nodes
    pid: int = 0
    slowness: float = 1.0  # how much longer this card takes than the model says


def gpu_samples(machine: SimulatedMachine, loads: Mapping[int, SlotLoad], drawn: random.Random) -> tuple[GpuSample, ...]:
    """A reading of every card. `loads`: by slot; an absent slot is idle."""
    return tuple(_gpu(machine, slot, loads.get(slot), drawn) for slot in range(machine.slots))


def _gpu(machine: SimulatedMachine, slot: int, load: SlotLoad | None, drawn: random.Random) -> GpuSample:
    card = machine.card
    share = 0.0 if load is None else min(1.0, max(WAITING_PERCENT / 100, load.computing + drawn.gauss(0.0, 0.03)))
    held = 600 << 20 if load is None else min(card.memory_bytes, load.memory_bytes + GIBIBYTE)
    warmth = random.Random(machine.uuid(slot)).uniform(-3.0, 5.0)  # of its place in the machine
    slow = load is not None and load.slowness > THROTTLED_SLOWNESS
    sent = 0.0 if load is None else load.sent_bytes_per_second
    return GpuSample(
        index=slot,
        uuid=machine.uuid(slot),
        utilization_percent=round(100 * share, 1),
        memory_used_bytes=held,
        memory_total_bytes=card.memory_bytes,
        temperature_celsius=round(IDLE_CELSIUS + warmth + share * (FULL_CELSIUS - IDLE_CELSIUS) + drawn.gauss(0.0, 0.4), 1),
        power_watts=round(card.idle_watts + share * 0.92 * (card.power_limit_watts - card.idle_watts) + drawn.gauss(0.0, 4.0), 1),
        power_limit_watts=card.power_limit_watts,
        sm_clock_mhz=round(card.sm_clock_mhz / (load.slowness if slow else 1.0)) if load is not None else IDLE_CLOCK_MHZ,
        memory_clock_mhz=card.memory_clock_mhz,
        ecc_corrected=0,
        ecc_uncorrected=0,
        pcie_sent_bytes_per_second=PCIE_BYTES_PER_SECOND * share,
        pcie_received_bytes_per_second=PCIE_BYTES_PER_SECOND * share,
        nvlink_sent_bytes_per_second=sent,
        nvlink_received_bytes_per_second=sent,
        throttle_reasons=("software_thermal_slowdown",) if slow else (),
        processes={load.pid: held} if load is not None else {},
    )


def host_sample(machine: SimulatedMachine, loads: Mapping[int, SlotLoad], drawn: random.Random) -> HostSample:
    """A reading of the machine."""
    busy = len(loads) / machine.slots
    sent = sum(load.sent_bytes_per_second for load in loads.values() if load.leaves_node)
    return HostSample(
        cpu_percent=round(max(0.5, 2.0 + 38.0 * busy + drawn.gauss(0.0, 1.5)), 1),
        memory_used_bytes=int((24 + 40 * len(loads)) * GIBIBYTE),
        memory_total_bytes=machine.memory_bytes,
        disk_used_bytes=int(0.31 * DISK_BYTES),
        disk_total_bytes=DISK_BYTES,
        network_sent_bytes_per_second=sent,
        network_received_bytes_per_second=sent,
        load_1m=round(0.4 * busy * machine.cpu_count, 2),
        disk_read_bytes_per_second=READ_BYTES_PER_SECOND * sum(load.computing for load in loads.values()),
        disk_written_bytes_per_second=1e5,
        interfaces={INTERFACE: InterfaceRates(sent_bytes_per_second=sent, received_bytes_per_second=sent)},
    )
