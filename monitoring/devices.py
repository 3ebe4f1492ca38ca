"""What a device could do at most, and which share of that a model used: MFU.

Peaks are the makers' own figures, dense (without structured sparsity), at boost clock, for products that are added up in fp32. A device that
is not listed has no MFU: a guess would look like a measurement. A CPU has none either: its peak depends on clocks that no data sheet promises.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

TERA = 1e12


@dataclass(frozen=True)
class Device:
    """Peak figures of one product; `pattern` matches the name that the driver gives."""

    pattern: str
    teraflops: Mapping[str, float]  # by precision, as `JobSpec.precision` spells it; fp8, which no job has, for comparisons
    source: str


@dataclass(frozen=True)
class Peak:
    flops: float  # per second
    source: str


#: The first that matches counts. fp32 is that of plain fp32 units: the trainer leaves TF32 off.
DEVICES = (
    Device(r"B200\b", {"fp8": 4500, "bf16": 2250, "fp16": 2250, "fp32": 75}, "NVIDIA HGX B200 datasheet"),
    Device(r"H200 NVL\b", {"bf16": 835.5, "fp16": 835.5, "fp32": 60}, "NVIDIA H200 datasheet, NVL"),
    Device(r"G?H200\b", {"fp8": 1979, "bf16": 989.5, "fp16": 989.5, "fp32": 67}, "NVIDIA H200 and GH200 datasheets"),
    Device(r"H100 PCIe\b", {"bf16": 756.5, "fp16": 756.5, "fp32": 51}, "NVIDIA H100 datasheet, PCIe"),
    Device(r"H100 NVL\b", {"bf16": 835.5, "fp16": 835.5, "fp32": 60}, "NVIDIA H100 datasheet, NVL"),
    Device(r"H100\b.*HBM3", {"fp8": 1979, "bf16": 989.5, "fp16": 989.5, "fp32": 67}, "NVIDIA H100 datasheet, SXM5"),
    Device(r"A100\b", {"bf16": 312, "fp16": 312, "fp32": 19.5}, "NVIDIA A100 datasheet"),
    Device(r"A40\b", {"bf16": 149.7, "fp16": 149.7, "fp32": 37.4}, "NVIDIA A40 datasheet"),
    Device(r"A30\b", {"bf16": 165, "fp16": 165, "fp32": 10.3}, "NVIDIA A30 datasheet"),
    Device(r"A10\b", {"bf16": 125, "fp16": 125, "fp32": 31.2}, "NVIDIA A10 datasheet"),
    Device(r"L40S\b", {"bf16": 362, "fp16": 362, "fp32": 91.6}, "NVIDIA L40S datasheet"),
    Device(r"L40\b", {"bf16": 181, "fp16": 181, "fp32": 90.5}, "NVIDIA L40 datasheet"),
    Device(r"L4\b", {"bf16": 121, "fp16": 121, "fp32": 30.3}, "NVIDIA L4 datasheet"),
    Device(r"V100-SXM2\b", {"fp16": 125, "fp32": 15.7}, "NVIDIA V100 datasheet, SXM2"),
    Device(r"V100-PCIE\b", {"fp16": 112, "fp32": 14}, "NVIDIA V100 datasheet, PCIe"),
    Device(r"T4\b", {"fp16": 65, "fp32": 8.1}, "NVIDIA T4 datasheet"),
)


def peak_of(device: str, precision: str) -> Peak | None:
    """Return the dense peak of a device, by the name that its driver gives ("NVIDIA H100 80GB HBM3"), at `precision`; None if it is not
    listed."""
    known = next((each for each in DEVICES if re.search(rf"\b{each.pattern}", device)), None)
    if known is None or precision not in known.teraflops:
        return None
    return Peak(known.teraflops[precision] * TERA, known.source)


def model_flops_utilization(samples_per_second: float, flops_per_sample: float, peak_flops: float) -> float:
    """MFU (Chowdhery et al. 2022, PaLM, appendix B): the arithmetic that the model needs, forward and backward, over what all devices
    together could do in that time. What is computed again to save memory is no part of it. `peak_flops` per second, of all devices."""
    return samples_per_second * flops_per_sample / peak_flops
