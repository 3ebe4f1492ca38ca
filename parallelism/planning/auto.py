"""Which plan to train with, chosen by the estimates of memory and time. Pure; the answer says why, and what became of the other plans.

Every plan that the trainer can run is looked at: all ways to share out the world over the axes, with and without activations computed
again, for all micro-batch sizes that are a power of two or a data rank's whole share. Of those that fit the fastest wins; of equally fast
ones the plainest, then the one that needs least memory. Time is cheap to estimate and memory is not, so memory is looked at only where it
decides something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import get_args

from parallelism.plan import Degrees
from parallelism.planning import auto_words as words
from parallelism.planning.memory import Checkpointing, Memory, OptimizerKind, Setup, memory
from parallelism.planning.shape import Precision, Shape
from parallelism.planning.step_time import Load, Machines, StepTime, loads_of, step_time

#: Of a device's memory: what the estimate may miss, the allocator's gaps, and what the driver and the libraries take.
RESERVE = 0.1
#: How many times as many nodes are looked at for what would fit.
MOST_NODES = 64


@dataclass(frozen=True)
class Supported:
    """What the trainer can run. `permits` is asked about single plans, for what no list of axes can say."""

    axes: Collection[str] = ("replicate",)  # fields of Degrees; the others stay 1
    activation_checkpointing: tuple[Checkpointing, ...] = ("none",)
    permits: Callable[[Setup], bool] = lambda setup: True


@dataclass(frozen=True)
class Wanted:
    """What is to be trained, whatever it runs on, and what of the plan is settled already."""

    shape: Shape
    global_batch_size: int
    optimizer: OptimizerKind = "adamw"
    precision: Precision = "fp32"
    reproducible: bool | None = False  # None: where nothing but replicas is chosen, which promise it at little cost
    micro_batch_size: int | None = None  # None: chosen too
    reshard_after_forward: bool = True
    cpu_offload: bool = False
    degrees: Mapping[str, int] = field(default_factory=dict)  # sizes of axes that are settled
    also_replicas: tuple[int, ...] = ()  # other numbers of replicas that the plan must fit: an elastic job's least and most


@dataclass(frozen=True)
class Candidate:
    setup: Setup
    time: StepTime
    wanted: Wanted

    @cached_property
    def memory(self) -> Memory:
        """At the number of replicas that needs most."""
        sizes = [self.setup.degrees, *(replace(self.setup.degrees, replicate=count) for count in self.wanted.also_replicas)]
        return max((memory(self.wanted.shape, replace(self.setup, degrees=each)) for each in sizes), key=lambda each: each.total)

    @property
    def name(self) -> str:
        """`shard 4 x replicate 2, full activation checkpointing, micro-batches of 2`"""
        again = self.setup.activation_checkpointing
        checkpointing = "" if again == "none" else f", {again} activation checkpointing"
        return f"{words.degrees(self.setup.degrees)}{checkpointing}, micro-batches of {self.setup.micro_batch_size}"


@dataclass(frozen=True)
class Rejected:
    candidate: Candidate
    why: str


@dataclass(frozen=True)
class Choice:
    best: Candidate | None  # None: nothing fits
    why: str  # two sentences
    budget: int  # bytes
    #: Of plans that differ in micro-batches only the best one: the fastest that fit first, then those that do not. Where a way to share out
    #: the world fits in no mode of checkpointing, only the leanest.
    rejected: tuple[Rejected, ...]


def choose(wanted: Wanted, machines: Machines, supported: Supported) -> Choice:
    """Raises ValueError where no plan can share the global batch out over the world, whatever the memory."""
    budget, fitting, too_large = budget_of(machines), list[Candidate](), list[Candidate]()
    for families in families_of(wanted, machines, supported):
        hopeless = families[-1].floor > budget
        found = [(family, None if hopeless else family.fastest(budget)) for family in families]
        larger = [family for family, best in found if best is None]
        fitting += [best for _, best in found if best is not None]
        too_large += [family.smallest for family in (larger if len(larger) < len(found) else larger[-1:])]
    if not fitting and not too_large:
        raise ValueError(words.no_plan(wanted.global_batch_size, machines.world_size, sorted(supported.axes), wanted.degrees))
    fitting.sort(key=_preference)
    too_large.sort(key=lambda each: (each.memory.total, each.name))
    return _chosen(fitting, too_large, budget) if fitting else _nothing(too_large, wanted, machines, supported)


def _chosen(fitting: list[Candidate], too_large: list[Candidate], budget: int) -> Choice:
    best, *slower = fitting
    why = words.why(best, next(iter(slower), None), next(iter(too_large), None), budget)
    return Choice(best, why, budget, (*(Rejected(each, words.why_slower(each, best)) for each in slower), *_rejected(too_large, budget)))


def _rejected(too_large: list[Candidate], budget: int) -> tuple[Rejected, ...]:
    return tuple(Rejected(each, words.why_too_large(each, budget)) for each in too_large)


def budget_of(machines: Machines) -> int:
    return int((1 - RESERVE) * machines.memory_bytes)


@dataclass(frozen=True)
class Family:
    """Plans that differ in their micro-batches only, the fastest first."""

    members: tuple[Candidate, ...]
    permits: Callable[[Setup], bool]

    def fastest(self, budget: int) -> Candidate | None:
        """Of those that fit."""
        first, *others = self.members
        if self._holds(first, budget):
            return first
        return next((each for each in others if self._holds(each, budget)), None) if self.floor <= budget else None

    def _holds(self, member: Candidate, budget: int) -> bool:
        return member.memory.total <= budget and self.permits(member.setup)

    @cached_property
    def smallest(self) -> Candidate:
        """With more samples at a time only copies of gradients become fewer: but for the tree's, they do so at the last."""
        ends = self.members if self._least.setup.reproducible else (self._least, self._most)
        return min(ends, key=lambda each: each.memory.total)

    @property
    def floor(self) -> int:
        """Bytes that none of them can do without."""
        needed = self._least.memory
        return needed.total - needed.gradients - needed.buffers

    @cached_property
    def _least(self) -> Candidate:
        return min(self.members, key=lambda each: each.setup.micro_batch_size)

    @cached_property
    def _most(self) -> Candidate:
        return max(self.members, key=lambda each: each.setup.micro_batch_size)


def families_of(wanted: Wanted, machines: Machines, supported: Supported) -> Iterator[list[Family]]:
    """By the degrees of the axes; the leanest mode of checkpointing last."""
    known: dict[tuple[int, int, int], tuple[Load, ...]] = {}
    modes = _modes(wanted.shape, supported)
    for degrees in all_degrees(machines.world_size, supported.axes, wanted.degrees):
        if not _possible(degrees, wanted.shape, machines) or not _promises(degrees, wanted):
            continue
        plain = [_setup(wanted, degrees, size) for size in _micro_batch_sizes(wanted, degrees)]
        if not plain or not supported.permits(plain[0]):
            continue
        cut = (degrees.tensor, degrees.pipeline, degrees.context)
        loads = known[cut] = known.get(cut) or loads_of(wanted.shape, plain[0])
        yield [
            _family(wanted, machines, supported, loads, [replace(each, activation_checkpointing=mode) for each in plain]) for mode in modes
        ]


def _family(wanted: Wanted, machines: Machines, supported: Supported, loads: Sequence[Load], members: list[Setup]) -> Family:
    timed = [Candidate(each, step_time(wanted.shape, each, machines, loads), wanted) for each in members]
    return Family(tuple(sorted(timed, key=lambda each: (each.time.total, each.setup.micro_batch_size))), supported.permits)


def setups(wanted: Wanted, machines: Machines, supported: Supported) -> Iterator[Setup]:
    """Every one that the trainer can run, whether it fits or not."""
    families = families_of(wanted, machines, supported)
    return (each.setup for of_degrees in families for family in of_degrees for each in family.members)


def _setup(wanted: Wanted, degrees: Degrees, micro_batch_size: int) -> Setup:
    only_replicas = degrees.replicate == degrees.world_size
    return Setup(
        degrees,
        wanted.optimizer,
        wanted.precision,
        micro_batch_size,
        micro_batches=-(-wanted.global_batch_size // micro_batch_size),
        reproducible=only_replicas if wanted.reproducible is None else wanted.reproducible,
        reshard_after_forward=wanted.reshard_after_forward,
        cpu_offload=wanted.cpu_offload,
    )


def all_degrees(world_size: int, axes: Collection[str], settled: Mapping[str, int] | None = None) -> Iterator[Degrees]:
    """Every way to write the world size as a product over `axes`, of which some may be settled."""
    names = [name for name in ("replicate", "shard", "tensor", "pipeline", "context") if name in axes]
    for sizes in _factorizations(world_size, [(settled or {}).get(name) for name in names]):
        yield Degrees(**dict(zip(names, sizes, strict=True)))


def _factorizations(product: int, factors: list[int | None]) -> Iterator[tuple[int, ...]]:
    if not factors:
        if product == 1:
            yield ()
        return
    settled, *rest = factors
    firsts = range(1, product + 1) if settled is None else (settled,)
    if settled is None and not rest:
        firsts = (product,)
    for first in firsts:
        if product % first == 0:
            yield from ((first, *others) for others in _factorizations(product // first, rest))


def _possible(degrees: Degrees, shape: Shape, machines: Machines) -> bool:
    """Tensor parallelism talks in every block: it stays within a node."""
    return (
        degrees.tensor <= machines.slots_per_node
        and shape.heads % degrees.tensor == 0
        and shape.sequence % degrees.context == 0
        and degrees.pipeline <= max(1, shape.blocks)
    )


def _promises(degrees: Degrees, wanted: Wanted) -> bool:
    """Where the same bits are asked for: replicas of whole models alone give them on any number of ranks."""
    return not wanted.reproducible or degrees.replicate == degrees.world_size


def _micro_batch_sizes(wanted: Wanted, degrees: Degrees) -> list[int]:
    """Ascending; such that each data rank has one micro-batch at least."""
    whole = wanted.global_batch_size // max(degrees.data, *wanted.also_replicas, 1)
    if wanted.micro_batch_size is not None:
        return [wanted.micro_batch_size] if wanted.micro_batch_size <= whole else []
    return sorted({whole, *(1 << power for power in range(whole.bit_length()))}) if whole else []


def _modes(shape: Shape, supported: Supported) -> list[Checkpointing]:
    return [mode for mode in get_args(Checkpointing) if mode in supported.activation_checkpointing and (mode == "none" or shape.blocks)]


def _preference(candidate: Candidate) -> tuple[float, int, int, str]:
    """Fast, then plain: replicas survive the loss of a rank, and need no other axis."""
    others = sum(count > 1 for axis, count in asdict(candidate.setup.degrees).items() if axis != "replicate")
    return candidate.time.total, others, candidate.memory.total, candidate.name


def _nothing(too_large: list[Candidate], wanted: Wanted, machines: Machines, supported: Supported) -> Choice:
    """Says by how much, and the ways out."""
    smallest, budget = too_large[0], budget_of(machines)
    ways = []
    if "full" not in supported.activation_checkpointing:
        more = replace(supported, activation_checkpointing=("full",))
        ways += ["full activation checkpointing"] if _fits(wanted, machines, more) else []
    nodes = next((count for count in _more_nodes(machines) if _fits(wanted, replace(machines, nodes=count), supported)), None)
    ways += [f"{nodes} nodes of {words.plural(machines.slots_per_node, 'slot')}"] if nodes else []
    ways.append(f"slots with {words.size(int(smallest.memory.total / (1 - RESERVE)))} each")
    return Choice(None, words.why_nothing(smallest, budget, ways), budget, _rejected(too_large, budget))


def _more_nodes(machines: Machines) -> Iterator[int]:
    factor = 2
    while factor <= MOST_NODES:
        yield factor * machines.nodes
        factor *= 2


def _fits(wanted: Wanted, machines: Machines, supported: Supported) -> bool:
    """Whether the leanest plans do: nothing is whole on two ranks that may be cut over them."""
    axes = set(supported.axes) - ({"replicate"} if "shard" in supported.axes and not wanted.reproducible else set())
    leanest = replace(supported, axes=axes, activation_checkpointing=supported.activation_checkpointing[-1:])
    return any(family.fastest(budget_of(machines)) for families in families_of(wanted, machines, leanest) for family in families)
