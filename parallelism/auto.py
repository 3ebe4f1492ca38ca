"""Which plan to train with, chosen by the estimates of memory and time. Pure; the answer says why, and what became of every other plan.

Every plan that the trainer can run is looked at: all ways to share out the world over the axes, with and without activations computed
again, for all micro-batch sizes that are a power of two or a data rank's whole share. Of those that fit the fastest wins; of equally fast
ones the plainest, then the one that needs least memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import get_args

from parallelism.estimate import Checkpointing, Memory, OptimizerKind, Setup, memory
from parallelism.plan import Degrees
from parallelism.shape import Precision, Shape
from parallelism.step_time import Machines, StepTime, step_time

#: Of a device's memory: what the estimate may miss, the allocator's gaps, and what the driver and the libraries take.
RESERVE = 0.1
#: How many times as many nodes are looked at for what would fit.
MOST_NODES = 64
UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True)
class Supported:
    """What the trainer can run."""

    axes: Collection[str] = ("replicate",)  # fields of Degrees; the others stay 1
    activation_checkpointing: tuple[Checkpointing, ...] = ("none",)


@dataclass(frozen=True)
class Wanted:
    """What is to be trained, whatever it runs on."""

    shape: Shape
    global_batch_size: int
    optimizer: OptimizerKind = "adamw"
    precision: Precision = "fp32"
    reproducible: bool = False  # only replicas promise it
    micro_batch_size: int | None = None  # None: chosen too


@dataclass(frozen=True)
class Candidate:
    setup: Setup
    memory: Memory
    time: StepTime

    @property
    def name(self) -> str:
        """`shard 4 x replicate 2, full activation checkpointing, micro-batches of 2`"""
        again = self.setup.activation_checkpointing
        checkpointing = "" if again == "none" else f", {again} activation checkpointing"
        return f"{words(self.setup.degrees)}{checkpointing}, micro-batches of {self.setup.micro_batch_size}"


@dataclass(frozen=True)
class Rejected:
    candidate: Candidate
    why: str


@dataclass(frozen=True)
class Choice:
    best: Candidate | None  # None: nothing fits
    why: str  # two sentences
    rejected: tuple[Rejected, ...]  # the fastest that fit first, then those that do not, the smallest first


def choose(wanted: Wanted, machines: Machines, supported: Supported) -> Choice:
    """Raises ValueError where no plan can share the global batch out over the world, whatever the memory."""
    candidates = [_estimate(wanted, setup, machines) for setup in setups(wanted, machines, supported)]
    if not candidates:
        raise ValueError(
            f"global_batch_size={wanted.global_batch_size} cannot be shared out over {plural(machines.world_size, 'rank')} along "
            f"{', '.join(sorted(supported.axes))}; use {machines.world_size} or more samples, or fewer slots"
        )
    budget = budget_of(machines)
    fitting = sorted((each for each in candidates if each.memory.total <= budget), key=_preference)
    too_large = sorted((each for each in candidates if each.memory.total > budget), key=lambda each: (each.memory.total, each.name))
    if not fitting:
        return Choice(None, _why_nothing(too_large[0], wanted, machines, supported), _too_large(too_large, budget))
    best, *slower = fitting
    why = _why(best, slower, too_large, machines)
    return Choice(best, why, (*(Rejected(each, _why_slower(each, best)) for each in slower), *_too_large(too_large, budget)))


def budget_of(machines: Machines) -> int:
    return int((1 - RESERVE) * machines.memory_bytes)


def setups(wanted: Wanted, machines: Machines, supported: Supported) -> Iterator[Setup]:
    """Every one that the trainer can run, whether it fits or not."""
    axes = set(supported.axes) & {"replicate"} if wanted.reproducible else set(supported.axes)
    for degrees in all_degrees(machines.world_size, axes):
        if not _possible(degrees, wanted.shape, machines):
            continue
        for size in _micro_batch_sizes(wanted, degrees.replicate * degrees.shard):
            base = Setup(degrees, wanted.optimizer, wanted.precision, size, -(-wanted.global_batch_size // size), wanted.reproducible)
            yield from (replace(base, activation_checkpointing=mode) for mode in _modes(wanted.shape, supported))


def all_degrees(world_size: int, axes: Collection[str]) -> Iterator[Degrees]:
    """Every way to write the world size as a product over `axes`."""
    names = [name for name in ("replicate", "shard", "tensor", "pipeline", "context") if name in axes]
    for sizes in _factorizations(world_size, len(names)):
        yield Degrees(**dict(zip(names, sizes, strict=True)))


def _factorizations(product: int, factors: int) -> Iterator[tuple[int, ...]]:
    if factors == 0:
        if product == 1:
            yield ()
        return
    for first in (each for each in range(1, product + 1) if product % each == 0):
        yield from ((first, *rest) for rest in _factorizations(product // first, factors - 1))


def _possible(degrees: Degrees, shape: Shape, machines: Machines) -> bool:
    """Tensor parallelism talks in every block: it stays within a node."""
    return (
        degrees.tensor <= machines.slots_per_node
        and shape.heads % degrees.tensor == 0
        and shape.sequence % degrees.context == 0
        and degrees.pipeline <= max(1, shape.blocks)
    )


def _micro_batch_sizes(wanted: Wanted, data_ranks: int) -> list[int]:
    """Such that each data rank has one micro-batch at least."""
    whole = wanted.global_batch_size // data_ranks
    if wanted.micro_batch_size is not None:
        return [wanted.micro_batch_size] if wanted.micro_batch_size <= whole else []
    return sorted({whole, *(1 << power for power in range(whole.bit_length()))}) if whole else []


def _modes(shape: Shape, supported: Supported) -> list[Checkpointing]:
    return [mode for mode in get_args(Checkpointing) if mode in supported.activation_checkpointing and (mode == "none" or shape.blocks)]


def _estimate(wanted: Wanted, setup: Setup, machines: Machines) -> Candidate:
    return Candidate(setup, memory(wanted.shape, setup), step_time(wanted.shape, setup, machines))


def _preference(candidate: Candidate) -> tuple[float, int, int, str]:
    """Fast, then plain: replicas survive the loss of a rank, and need no other axis."""
    others = sum(count > 1 for axis, count in asdict(candidate.setup.degrees).items() if axis != "replicate")
    return candidate.time.total, others, candidate.memory.total, candidate.name


def _too_large(candidates: Sequence[Candidate], budget: int) -> tuple[Rejected, ...]:
    return tuple(
        Rejected(each, f"needs {size(each.memory.total)} {each.memory.moment}, {size(each.memory.total - budget)} more than there is")
        for each in candidates
    )


def _why(best: Candidate, slower: Sequence[Candidate], too_large: Sequence[Candidate], machines: Machines) -> str:
    needs = f"a rank needs {size(best.memory.total)} of {size(budget_of(machines))} ({best.memory.moment})"
    fits = f"{sentence(best.name)}: {needs}, and a step should take {duration(best.time.total)}."
    if slower:
        return f"{fits} The next best that fits, {slower[0].name}, {_why_slower(slower[0], best)}."
    if too_large:
        return f"{fits} Nothing else fits: the smallest of the others, {too_large[0].name}, needs {size(too_large[0].memory.total)}."
    return f"{fits} There is no other way to share out {plural(machines.world_size, 'rank')}."


def _why_slower(candidate: Candidate, best: Candidate) -> str:
    """Names the part of the step that grows most."""
    more = {name: getattr(candidate.time, name) - getattr(best.time, name) for name in _MORE}
    part = max(more, key=lambda name: more[name])
    if more[part] <= 0:
        return f"would take as long and needs {size(candidate.memory.total)}"
    return f"would take {duration(candidate.time.total)}, {duration(more[part])} of it more {_MORE[part]}"


_MORE = {
    "compute": "in computing",
    "recompute": "in computing activations again",
    "bubble": "in stages that wait for each other",
    "communication": "in waiting for messages",
}


def _why_nothing(smallest: Candidate, wanted: Wanted, machines: Machines, supported: Supported) -> str:
    budget = budget_of(machines)
    needs = f"needs {size(smallest.memory.total)} {smallest.memory.moment}"
    lacking = f"{size(smallest.memory.total - budget)} more than the {size(budget)} there is"
    return f"Nothing fits: the smallest plan, {smallest.name}, {needs}, {lacking}. {_what_would(smallest, wanted, machines, supported)}"


def _what_would(smallest: Candidate, wanted: Wanted, machines: Machines, supported: Supported) -> str:
    """The way out, in one sentence."""
    ways = []
    if "full" not in supported.activation_checkpointing:
        more = replace(supported, activation_checkpointing=("full",))
        ways += ["full activation checkpointing"] if _fits(wanted, machines, more) else []
    nodes = next((count for count in _more_nodes(machines) if _fits(wanted, replace(machines, nodes=count), supported)), None)
    ways += [f"{nodes} nodes of {plural(machines.slots_per_node, 'slot')}"] if nodes else []
    ways.append(f"slots with {size(int(smallest.memory.total / (1 - RESERVE)))} each")
    return f"It would fit with {' or '.join(ways)}."


def _more_nodes(machines: Machines) -> Iterator[int]:
    factor = 2
    while factor <= MOST_NODES:
        yield factor * machines.nodes
        factor *= 2


def _fits(wanted: Wanted, machines: Machines, supported: Supported) -> bool:
    budget = budget_of(machines)
    return any(memory(wanted.shape, setup).total <= budget for setup in setups(wanted, machines, supported))


def words(degrees: Degrees) -> str:
    """`shard 4 x replicate 2`; axes of size one go without saying."""
    sizes = [f"{axis} {count}" for axis, count in asdict(degrees).items() if count > 1]
    return " x ".join(sizes) or "a single process"


def size(count: int) -> str:
    """`1.5 GiB`"""
    power = min(len(UNITS) - 1, max(0, count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {UNITS[power]}" if power else f"{count} B"


def duration(seconds: float) -> str:
    """`41.3 ms`, with three significant digits."""
    if seconds >= 100:
        return f"{seconds:,.0f} s"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
