"""Assumed speeds of computing and communicating, for planning where nothing was measured. Pure; every plan says what was assumed.

The numbers are round ones of ordinary machines: good for ranking plans, not for promising seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.parallelism.planning.machines import Link

#: The share of the maker's peak that is assumed; Narayanan et al. 2021, table 1, reach 0.44 to 0.52 with large models, Chowdhery et al. 2022, table 3, list 0.21 to 0.46.
SHARE_OF_PEAK = 0.4


@dataclass(frozen=True)
class HardwareDefaults:
    """The assumed speeds of one kind of slots."""

    flops_per_second: float  # of a slot, where its device's peak is not known
    within: Link
    between: Link
    overlaps: bool  # whether messages travel while the device computes
    memory_bytes_per_second: float  # see Machines
    tensor_overhead_seconds: float  # see Machines
    words: str


#: Measured on one core in steps of a small GPT: 90 GFLOP/s in fp32; gloo exchanged 13 MB of gradients between two processes at 0.9 GB/s; AdamW used 27 GB/s of memory;
#: a sum of tensor parallelism took 9 ms more than its messages, of small tensors.
CPU_SLOTS = HardwareDefaults(
    flops_per_second=6e10,
    within=Link(1e9, 1e-4),
    between=Link(6e8, 2e-4),
    overlaps=False,
    memory_bytes_per_second=2e10,
    tensor_overhead_seconds=3e-3,
    words="60 GFLOP/s a slot, 1 GB/s between slots of a node, 0.6 GB/s between nodes (gloo over 10 Gbit/s), memory at 20 GB/s a slot",
)
#: PCI Express 4.0 with 16 lanes, and an adapter of 100 Gbit/s; what is dispatched in Python is mostly hidden behind kernels.
GPUS = HardwareDefaults(
    flops_per_second=SHARE_OF_PEAK * 1e14,
    within=Link(2.5e10, 2e-5),
    between=Link(1.2e10, 3e-5),
    overlaps=True,
    memory_bytes_per_second=1e12,
    tensor_overhead_seconds=1e-4,
    words="25 GB/s between GPUs of a node (PCI Express 4.0), 12 GB/s between nodes (100 Gbit/s), memory at 1 TB/s",
)
