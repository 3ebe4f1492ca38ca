"""What a sum of gradients costs: a latency and a time for each byte (Hockney 1994), as two probes of it tell, and the links that they went over. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paceline.parallelism.communication.choices import ReductionChoice


@dataclass(frozen=True)
class SumCost:
    """Seconds of one sum, on the slowest rank."""

    latency: float
    seconds_per_byte: float  # of gradients, however many bytes of them are sent

    def of(self, size: float, messages: int = 1) -> float:
        """Return the seconds of sums of `size` bytes of gradients in total, in `messages` buckets."""
        return messages * self.latency + size * self.seconds_per_byte


def cost_of(small: tuple[int, float], large: tuple[int, float]) -> SumCost:
    """Return the cost that two probes tell, each of (bytes, seconds)."""
    (few, brief), (many, long) = small, large
    if long <= brief:  # something else took the small one's time
        return SumCost(0.0, long / many)
    slope = (long - brief) / (many - few)
    return SumCost(max(0.0, brief - few * slope), slope)


@dataclass(frozen=True)
class MeasuredLink:
    """A link as probes found it, for all ranks of a machine together."""

    latency_seconds: float
    bytes_per_second: float


@dataclass(frozen=True)
class Links:
    """The links of a gang. None: there is none of its kind, or no sum of its own goes over it."""

    within: MeasuredLink | None = None  # a machine
    between: MeasuredLink | None = None  # machines


def link_of(cost: SumCost, ranks: int, sharers: int = 1) -> MeasuredLink:
    """Return the link under a ring of `ranks`, of which `sharers` went over it at the same time. A ring takes 2 (n - 1) messages of a share of 1 / n."""
    messages = 2 * (ranks - 1)
    return MeasuredLink(cost.latency / messages, sharers * messages / (ranks * cost.seconds_per_byte))


@dataclass(frozen=True)
class GradientBytes:
    """Bytes of a model's gradients on one rank, in fp32."""

    compressible: int
    whole: int  # of norms, biases, embeddings and what the job excludes: always summed whole
    buckets: int


def predicted_sums(costs: Mapping[ReductionChoice, SumCost], gradients: GradientBytes) -> dict[ReductionChoice, float]:
    """Return the seconds of a step's sums by each choice."""
    found = {}
    exact = {choice.algorithm: cost for choice, cost in costs.items() if choice.compression == "none"}
    for choice, cost in costs.items():
        if choice.is_lossy:
            whole = exact.get(choice.algorithm, next(iter(exact.values()), cost)).of(gradients.whole, gradients.buckets)
            found[choice] = whole + cost.of(gradients.compressible, gradients.buckets)
        else:
            found[choice] = cost.of(gradients.whole + gradients.compressible, gradients.buckets)
    return found
