"""How a model is parallelized beside the sizes of the axes, as a plain value. Pure, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from paceline.parallelism.communication.options import CommunicationOptions
from paceline.parallelism.plan import LEAST_IN_UNIT


@dataclass(frozen=True)
class ParallelizeOptions:
    """Options of `apply.parallelize` beside the sizes of the axes."""

    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    reshard_after_forward: bool = True  # False: whole parameters stay from forward to backward (ZeRO-2)
    cpu_offload: bool = False
    least_in_unit: int = LEAST_IN_UNIT
    communication: CommunicationOptions = field(default_factory=CommunicationOptions)
