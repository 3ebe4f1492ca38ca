"""Readings of a machine and its GPUs: plain values. None: the hardware does not tell, which is not zero."""

from __future__ import annotations

import msgspec

#: Why there are no readings on a machine without a card or without a driver, which is as it should be; any other reason is news.
NO_GPU = "no GPU"
#: Every reason that `throttle_reasons` may name, in the order of NVML's bits in `gpu.py`.
THROTTLE_NAMES = (
    "applications_clocks_setting",
    "software_power_cap",
    "hardware_slowdown",
    "sync_boost",
    "software_thermal_slowdown",
    "hardware_thermal_slowdown",
    "hardware_power_brake",
    "display_clock_setting",
)


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a GPU that stay constant while the agent runs."""

    index: int
    uuid: str
    name: str
    memory_bytes: int
    mig: bool = False  # it is split into instances (MIG mode)


class GpuSample(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one GPU. A field is None where the card does not report it, which is not zero."""

    index: int
    uuid: str
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    pcie_sent_bytes_per_second: float | None = None
    pcie_received_bytes_per_second: float | None = None
    nvlink_sent_bytes_per_second: float | None = None
    nvlink_received_bytes_per_second: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    processes: dict[int, int] = {}  # pid: bytes
    error: str | None = None  # "GPU is lost", ...


class InterfaceRates(msgspec.Struct, frozen=True, kw_only=True):
    """The traffic of one network interface."""

    sent_bytes_per_second: float
    received_bytes_per_second: float


class HostSample(msgspec.Struct, frozen=True, kw_only=True):
    cpu_percent: float
    memory_used_bytes: int
    memory_total_bytes: int
    disk_used_bytes: int
    disk_total_bytes: int
    network_sent_bytes_per_second: float
    network_received_bytes_per_second: float
    load_1m: float
    disk_read_bytes_per_second: float | None = None  # over all disks
    disk_written_bytes_per_second: float | None = None
    interfaces: dict[str, InterfaceRates] = {}  # without the loopback
