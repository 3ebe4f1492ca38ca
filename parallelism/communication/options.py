"""How a job's gradients are summed over its replicas, as a plain value. Pure, no torch."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline.distributed.collectives.options import Algorithm
from paceline.distributed.compression.options import CompressionOptions


@dataclass(frozen=True)
class CommunicationOptions:
    algorithm: Algorithm = "backend"
    compression: CompressionOptions = field(default_factory=CompressionOptions)
    exclude: tuple[str, ...] = ()  # patterns of names of parameters that are sent as they are
    bucket_mb: float | None = None  # of DDP's buckets; None: torch's, 25 after a first one of 1, or what is found best
    static_graph: bool = False  # DDP's own option

    @property
    def is_default(self) -> bool:
        """Whether gradients are summed whole and by the backend."""
        return self.algorithm == "backend" and self.compression.compression == "none"
