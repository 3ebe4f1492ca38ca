"""Devices by their makers' data sheets: memory, its bandwidth, and the link between the cards of a machine. Pure; no guesses.

Peak rates of arithmetic are those of `monitoring/devices.py`, which MFU is counted by. What a model gets of a peak is stated in one place,
`SHARE_OF_PEAK`: once for tensor cores and once for plain units, for all devices, models and plans.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paceline.monitoring.devices import Peak, peak_of
from paceline.parallelism.planning.cost.errors import UnknownDeviceError
from paceline.parallelism.planning.hardware_defaults import SHARE_OF_PEAK as TENSOR_CORES

GIGA, TERA = 10**9, 10**12
#: The share of a peak that products reach, without norms, gates and losses, whose time is that of their memory traffic. Tensor cores: the planner's
#: own number, which is from published rates of large models. Plain fp32 units wait less for their operands, since they are 8 to 15 times slower beside the
#: same memory: `docs/scaling_tables.md` says which published row the number is from.
SHARE_OF_PEAK: Mapping[str, float] = {"bf16": TENSOR_CORES, "fp16": TENSOR_CORES, "fp8": TENSOR_CORES, "fp32": 0.65}
#: The share of the memory's peak bandwidth that kernels reach which do nothing but read and write.
SHARE_OF_MEMORY = 0.8


@dataclass(frozen=True)
class CatalogueDevice:
    """One product. `pattern` matches the name that the driver gives."""

    name: str
    pattern: str
    memory_bytes: int
    memory_bytes_per_second: float
    link: str  # between the cards of a machine, by its name in `links.py`
    source: str
    peaks_of: str | None = None  # the product whose peak rates it has, where its own are not published

    def peak(self, precision: str) -> Peak | None:
        """Return the dense peak of arithmetic in a precision, or None: the device does not have it."""
        return peak_of(self.peaks_of or self.name, precision)

    def rate(self, precision: str) -> float:
        """Return the floating-point operations per second that products are assumed to reach."""
        peak = self.peak(precision)
        if peak is None or precision not in SHARE_OF_PEAK:
            raise UnknownDeviceError(f"{self.name} in {precision}", (each.name for each in DEVICES))
        return SHARE_OF_PEAK[precision] * peak.flops

    @property
    def memory_rate(self) -> float:
        """The bytes per second that kernels are assumed to reach."""
        return SHARE_OF_MEMORY * self.memory_bytes_per_second


DEVICES: tuple[CatalogueDevice, ...] = (
    CatalogueDevice("NVIDIA B200", r"B200\b", 180 * GIGA, 7.7 * TERA, "NVLink 5", "NVIDIA HGX B200 datasheet"),
    CatalogueDevice("NVIDIA H200 NVL", r"H200 NVL\b", 141 * GIGA, 4.8 * TERA, "PCIe 5", "NVIDIA H200 datasheet, NVL"),
    CatalogueDevice("NVIDIA H200", r"H200\b", 141 * GIGA, 4.8 * TERA, "NVLink 4", "NVIDIA H200 datasheet, SXM"),
    CatalogueDevice("NVIDIA H100 PCIe", r"H100 PCIe\b", 80 * GIGA, 2.0 * TERA, "PCIe 5", "NVIDIA H100 datasheet, PCIe"),
    CatalogueDevice("NVIDIA H100 NVL", r"H100 NVL\b", 94 * GIGA, 3.9 * TERA, "PCIe 5", "NVIDIA H100 datasheet, NVL"),
    CatalogueDevice("NVIDIA H100 80GB HBM3", r"H100\b.*HBM3\b", 80 * GIGA, 3.35 * TERA, "NVLink 4", "NVIDIA H100 datasheet, SXM5"),
    CatalogueDevice(
        "NVIDIA H100 96GB HBM2e",
        r"H100\b.*HBM2e\b",
        96 * GIGA,
        2.4 * TERA,
        "NVLink 4",
        "Grand Teton as torchtitan's benchmarks state it (96 GB, 2.4 TB/s, 500 W); peaks: NVIDIA H100 datasheet, SXM5",
        peaks_of="NVIDIA H100 80GB HBM3",
    ),
    CatalogueDevice("NVIDIA A100-SXM4-80GB", r"A100-SXM4-80GB\b", 80 * GIGA, 2.039 * TERA, "NVLink 3", "NVIDIA A100 datasheet, 80GB SXM"),
    CatalogueDevice("NVIDIA A100-SXM4-40GB", r"A100-SXM4-40GB\b", 40 * GIGA, 1.555 * TERA, "NVLink 3", "NVIDIA A100 datasheet, 40GB SXM"),
    CatalogueDevice("NVIDIA A100 80GB PCIe", r"A100 80GB PCIe\b", 80 * GIGA, 1.935 * TERA, "PCIe 4", "NVIDIA A100 datasheet, 80GB PCIe"),
    CatalogueDevice("NVIDIA A40", r"A40\b", 48 * GIGA, 0.696 * TERA, "PCIe 4", "NVIDIA A40 datasheet"),
    CatalogueDevice("NVIDIA A30", r"A30\b", 24 * GIGA, 0.933 * TERA, "PCIe 4", "NVIDIA A30 datasheet"),
    CatalogueDevice("NVIDIA A10", r"A10\b", 24 * GIGA, 0.6 * TERA, "PCIe 4", "NVIDIA A10 datasheet"),
    CatalogueDevice("NVIDIA L40S", r"L40S\b", 48 * GIGA, 0.864 * TERA, "PCIe 4", "NVIDIA L40S datasheet"),
    CatalogueDevice("NVIDIA L40", r"L40\b", 48 * GIGA, 0.864 * TERA, "PCIe 4", "NVIDIA L40 datasheet"),
    CatalogueDevice("NVIDIA L4", r"L4\b", 24 * GIGA, 0.3 * TERA, "PCIe 4", "NVIDIA L4 datasheet"),
    CatalogueDevice("Tesla V100-SXM2-32GB", r"V100-SXM2-32GB\b", 32 * GIGA, 0.9 * TERA, "NVLink 2", "NVIDIA V100 datasheet, SXM2"),
    CatalogueDevice("Tesla V100-SXM2-16GB", r"V100-SXM2-16GB\b", 16 * GIGA, 0.9 * TERA, "NVLink 2", "NVIDIA V100 datasheet, SXM2"),
    CatalogueDevice("Tesla V100-PCIE-16GB", r"V100-PCIE\b", 16 * GIGA, 0.9 * TERA, "PCIe 3", "NVIDIA V100 datasheet, PCIe"),
    CatalogueDevice("Tesla T4", r"T4\b", 16 * GIGA, 0.3 * TERA, "PCIe 3", "NVIDIA T4 datasheet"),
)


def device_named(name: str) -> CatalogueDevice:
    """Return the device with the name that its driver gives, such as `NVIDIA H100 80GB HBM3`. Raises UnknownDeviceError."""
    known = next((each for each in DEVICES if re.search(rf"\b{each.pattern}", name)), None)
    if known is None:
        raise UnknownDeviceError(name, (each.name for each in DEVICES))
    return known
