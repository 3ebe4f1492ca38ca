"""The ways to sum gradients that `auto` chooses between. Pure, no torch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from paceline.distributed.collectives.options import ALGORITHMS, Algorithm
from paceline.distributed.compression.options import LOSSY, Compression
from paceline.parallelism.communication.options import CommunicationOptions

#: MiB of DDP's buckets where nobody says: torch's own, after a first one of 1.
TORCHS_BUCKET_MB = 25.0
#: MiB that are tried beside them: smaller ones begin earlier, larger ones are fewer messages. Small models are cut in so many parts instead.
SMALLER_MB, LARGER_MB, PARTS = 5.0, 100.0, 8
#: Smaller buckets are not worth their messages.
LEAST_MB = 0.25
#: The share of a step that a choice must save, by what it does to the sums: nothing; rounding; what it leaves out comes later, and changes what is learned.
WORTH: dict[Compression, float] = {"none": 0.02, "bf16": 0.05, "fp16": 0.05, "top_k": 0.2, "power_sgd": 0.2}
COMPRESSIONS: tuple[Compression, ...] = ("none", "bf16", "top_k", "power_sgd")

_SUMS: dict[Algorithm, str] = {"backend": "the backend", "ring": "a ring", "hierarchical": "a hierarchy"}
_KINDS: dict[Compression, str] = {
    "none": "exactly",
    "bf16": "in bf16",
    "fp16": "in fp16",
    "top_k": "as top_k",
    "power_sgd": "as power_sgd",
}


@dataclass(frozen=True)
class ReductionChoice:
    """One way to sum gradients."""

    algorithm: Algorithm = "backend"
    compression: Compression = "none"
    bucket_mb: float | None = None  # of DDP's buckets; None: as the job has them

    @classmethod
    def asked_for(cls, options: CommunicationOptions) -> ReductionChoice:
        """Return the way that a job's options name."""
        return cls(options.algorithm, options.compression.compression)

    @property
    def is_lossy(self) -> bool:
        return self.compression in LOSSY

    @property
    def worth(self) -> float:
        """The share of a step that it must save to be taken."""
        is_plain = self.algorithm == "backend" and self.compression == "none"
        return (0.0 if is_plain else WORTH[self.compression]) + (0.0 if self.bucket_mb is None else WORTH["none"])

    @property
    def name(self) -> str:
        buckets = "" if self.bucket_mb is None else f", in buckets of {self.bucket_mb:g} MiB"
        return f"{_KINDS[self.compression]}, by {_SUMS[self.algorithm]}{buckets}"

    def done_with(self, had: Collection[Algorithm]) -> ReductionChoice:
        """Return what is done where there are only the algorithms `had`, as `reduction_for` has it: without a hierarchy a ring, which sums whole gradients
        only, and without a ring the backend."""
        if self.algorithm in had:
            return self
        return replace(self, algorithm="ring" if "ring" in had and self.compression == "none" else "backend")

    def of(self, asked: CommunicationOptions) -> CommunicationOptions:
        """Return the job's options with this choice in them."""
        compression = replace(asked.compression, compression=self.compression)
        bucket_mb = asked.bucket_mb if self.bucket_mb is None else self.bucket_mb
        return replace(asked, algorithm=self.algorithm, compression=compression, bucket_mb=bucket_mb)


def bucket_sizes(gradients_mb: float) -> tuple[float, ...]:
    """Return the MiB of buckets to try beside torch's own for so many MiB of gradients; none where all of them are one message in any case.

    Of a model that is one bucket of torch's, or a few, nothing or little is sent before backward ends.
    """
    smaller = min(SMALLER_MB, gradients_mb / PARTS)
    larger = (LARGER_MB,) if gradients_mb > TORCHS_BUCKET_MB else ()  # else it is the same as torch's
    return (float(f"{smaller:.2g}"), *larger) if smaller >= LEAST_MB else larger


def choices(
    algorithm: Algorithm | Literal["auto"],
    compression: Compression | Literal["auto"],
    offered: Collection[Algorithm],
    compressions: Sequence[Compression] = COMPRESSIONS,
) -> tuple[ReductionChoice, ...]:
    """Return what is left to choose between, the default first: the backend's exact sum where the job leaves both open.

    `offered`: the algorithms that this device and these machines have. A ring sums whole gradients only.
    """
    algorithms = [each for each in ALGORITHMS if each in offered] if algorithm == "auto" else [algorithm]
    kinds = compressions if compression == "auto" else [compression]
    return tuple(ReductionChoice(each, kind) for kind in kinds for each in algorithms if each != "ring" or kind == "none")
