"""How gradients are compressed, as a plain value. Pure, no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Compression = Literal["none", "bf16", "fp16", "top_k", "power_sgd"]
Threshold = Literal["exact", "sampled"]

#: These leave something out until later; the others only round.
LOSSY: frozenset[Compression] = frozenset({"top_k", "power_sgd"})


@dataclass(frozen=True)
class CompressionOptions:
    """The values are checked where they are given (`training/schema/communication.py`)."""

    compression: Compression = "none"
    ratio: float = 0.01  # top_k: share of the elements that is sent
    threshold: Threshold = "sampled"  # top_k: how the largest elements are found
    rank: int = 2  # power_sgd: columns of each factor
    dense_steps: int = 10  # first steps of a job that are summed exactly
