"""Choose the plan to train with, by the estimates of memory and time. Pure; the result says why, and what became of the other plans.

Every plan that the trainer can run is considered: all ways to divide the world over the axes, with and without activation checkpointing,
for all micro-batch sizes that are a power of two or a data rank's whole share. Of those that fit the fastest is chosen; of equally fast
ones the plainest, then the one that needs least memory. Time is cheap to estimate and memory is not, so memory is estimated only where it
decides something.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import get_args

from paceline.monitoring.words import plural
from paceline.parallelism.model_shape import ModelShape, Precision
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning import auto_words as words
from paceline.parallelism.planning.machines import Machines
from paceline.parallelism.planning.memory import Checkpointing, OptimizerKind, RankMemory, TrainingSetup, memory
from paceline.parallelism.planning.step_time import StageLoad, StepTimeEstimate, loads_of, step_time
from paceline.parallelism.words import size

#: The share of a device's memory that is left free: for errors of the estimate, gaps of the allocator, the driver and the libraries.
RESERVE = 0.1
#: Up to so many times as many nodes are tried when nothing fits.
MOST_NODES = 64


@dataclass(frozen=True)
class SupportedPlans:
    """The plans that the trainer can run. `permits` is asked about single plans, for limits that no list of axes can express."""

    axes: Collection[str] = ("replicate",)  # fields of Degrees; the others stay 1
    activation_checkpointing: tuple[Checkpointing, ...] = ("none",)
    permits: Callable[[TrainingSetup], bool] = lambda setup: True


@dataclass(frozen=True)
class PlanRequest:
    """A model and how it is to be trained, on any machines, and the parts of the plan that are fixed already."""

    shape: ModelShape
    global_batch_size: int
    optimizer: OptimizerKind = "adamw"
    precision: Precision = "fp32"
    reproducible: bool | None = False  # None: only if nothing but replicas is chosen, for which it costs little
    micro_batch_size: int | None = None  # None: chosen too
    reshard_after_forward: bool = True
    cpu_offload: bool = False
    degrees: Mapping[str, int] = field(default_factory=dict)  # sizes of axes that are fixed
    also_replicas: tuple[int, ...] = ()  # other numbers of replicas at which the plan must fit: an elastic job's least and most


@dataclass(frozen=True)
class Candidate:
    """A plan with its estimates."""

    setup: TrainingSetup
    time: StepTimeEstimate
    request: PlanRequest

    @cached_property
    def memory(self) -> RankMemory:
        """The estimated memory at the number of replicas that needs most."""
        sizes = [self.setup.degrees, *(replace(self.setup.degrees, replicate=count) for count in self.request.also_replicas)]
        return max((memory(self.request.shape, replace(self.setup, degrees=each)) for each in sizes), key=lambda each: each.total)

    @property
    def name(self) -> str:
        """The plan as text, such as `shard 4 x replicate 2, full activation checkpointing, micro-batches of 2`."""
        again = self.setup.activation_checkpointing
        checkpointing = "" if again == "none" else f", {again} activation checkpointing"
        return f"{words.degrees(self.setup.degrees)}{checkpointing}, micro-batches of {self.setup.micro_batch_size}"


@dataclass(frozen=True)
class Rejected:
    """A plan that was not chosen, and why."""

    candidate: Candidate
    why: str


@dataclass(frozen=True)
class Choice:
    """The chosen plan, why it was chosen, and the other plans."""

    best: Candidate | None  # None: nothing fits
    why: str  # two sentences
    budget: int  # bytes
    #: Only the best one of plans that differ in micro-batches; those that fit come first, the fastest first. Degrees that fit in no mode of
    #: checkpointing appear once, with the mode that needs least.
    rejected: tuple[Rejected, ...]


def choose(request: PlanRequest, machines: Machines, supported: SupportedPlans) -> Choice:
    """Return the best plan, or a choice without one if nothing fits.

    Raises ValueError if no plan can divide the global batch over the world, whatever the memory.
    """
    budget, fitting, too_large = budget_of(machines), list[Candidate](), list[Candidate]()
    for groups in candidate_groups(request, machines, supported):
        hopeless = groups[-1].floor > budget
        found = [(group, None if hopeless else group.fastest(budget)) for group in groups]
        larger = [group for group, best in found if best is None]
        fitting += [best for _, best in found if best is not None]
        too_large += [group.smallest for group in (larger if len(larger) < len(found) else larger[-1:])]
    if not fitting and not too_large:
        raise ValueError(words.no_plan(request.global_batch_size, machines.world_size, sorted(supported.axes), request.degrees))
    fitting.sort(key=_preference)
    too_large.sort(key=lambda each: (each.memory.total, each.name))
    return _chosen(fitting, too_large, budget) if fitting else _nothing(too_large, request, machines, supported)


def _chosen(fitting: list[Candidate], too_large: list[Candidate], budget: int) -> Choice:
    best, *slower = fitting
    why = words.why(best, next(iter(slower), None), next(iter(too_large), None), budget)
    return Choice(best, why, budget, (*(Rejected(each, words.why_slower(each, best)) for each in slower), *_rejected(too_large, budget)))


def _rejected(too_large: list[Candidate], budget: int) -> tuple[Rejected, ...]:
    return tuple(Rejected(each, words.why_too_large(each, budget)) for each in too_large)


def budget_of(machines: Machines) -> int:
    """Return the bytes of a slot's memory that a plan may use."""
    return int((1 - RESERVE) * machines.memory_bytes)


@dataclass(frozen=True)
class CandidateGroup:
    """Plans that differ only in their micro-batch size, the fastest first."""

    members: tuple[Candidate, ...]
    permits: Callable[[TrainingSetup], bool]

    def fastest(self, budget: int) -> Candidate | None:
        """Return the fastest plan that fits `budget` bytes, or None."""
        first, *others = self.members
        if self._fits_in(first, budget):
            return first
        return next((each for each in others if self._fits_in(each, budget)), None) if self.floor <= budget else None

    def _fits_in(self, member: Candidate, budget: int) -> bool:
        return member.memory.total <= budget and self.permits(member.setup)

    @cached_property
    def smallest(self) -> Candidate:
        """The plan with the least memory.

        Larger micro-batches need more memory, except that fewer copies of gradients are held. Without the tree that can only matter at
        the largest size, so checking both ends is enough.
        """
        ends = self.members if self._least.setup.reproducible else (self._least, self._most)
        return min(ends, key=lambda each: each.memory.total)

    @property
    def floor(self) -> int:
        """Bytes that every plan of the group needs at least."""
        needed = self._least.memory
        return needed.total - needed.gradients - needed.buffers

    @cached_property
    def _least(self) -> Candidate:
        return min(self.members, key=lambda each: each.setup.micro_batch_size)

    @cached_property
    def _most(self) -> Candidate:
        return max(self.members, key=lambda each: each.setup.micro_batch_size)


def candidate_groups(request: PlanRequest, machines: Machines, supported: SupportedPlans) -> Iterator[list[CandidateGroup]]:
    """Yield for each choice of degrees one group for each mode of checkpointing, the mode with the least memory last."""
    known: dict[tuple[int, int, int], tuple[StageLoad, ...]] = {}
    modes = _modes(request.shape, supported)
    for degrees in all_degrees(machines.world_size, supported.axes, request.degrees):
        if not _possible(degrees, request.shape, machines) or not _is_reproducible_as_asked(degrees, request):
            continue
        plain = [_setup(request, degrees, size) for size in _micro_batch_sizes(request, degrees)]
        if not plain or not supported.permits(plain[0]):
            continue
        cut = (degrees.tensor, degrees.pipeline, degrees.context)
        loads = known[cut] = known.get(cut) or loads_of(request.shape, plain[0])
        yield [
            _candidate_group(request, machines, supported, loads, [replace(each, activation_checkpointing=mode) for each in plain])
            for mode in modes
        ]


def _candidate_group(
    request: PlanRequest, machines: Machines, supported: SupportedPlans, loads: Sequence[StageLoad], members: list[TrainingSetup]
) -> CandidateGroup:
    timed = [Candidate(each, step_time(request.shape, each, machines, loads), request) for each in members]
    return CandidateGroup(tuple(sorted(timed, key=lambda each: (each.time.total, each.setup.micro_batch_size))), supported.permits)


def setups(request: PlanRequest, machines: Machines, supported: SupportedPlans) -> Iterator[TrainingSetup]:
    """Yield every plan that the trainer can run, whether it fits or not."""
    groups = candidate_groups(request, machines, supported)
    return (each.setup for of_degrees in groups for group in of_degrees for each in group.members)


def _setup(request: PlanRequest, degrees: Degrees, micro_batch_size: int) -> TrainingSetup:
    only_replicas = degrees.replicate == degrees.world_size
    return TrainingSetup(
        degrees,
        request.optimizer,
        request.precision,
        micro_batch_size,
        micro_batches=-(-request.global_batch_size // micro_batch_size),
        reproducible=only_replicas if request.reproducible is None else request.reproducible,
        reshard_after_forward=request.reshard_after_forward,
        cpu_offload=request.cpu_offload,
    )


def all_degrees(world_size: int, axes: Collection[str], fixed: Mapping[str, int] | None = None) -> Iterator[Degrees]:
    """Yield every way to write the world size as a product over `axes`, of which some may be fixed."""
    names = [name for name in ("replicate", "shard", "tensor", "pipeline", "context") if name in axes]
    for sizes in _factorizations(world_size, [(fixed or {}).get(name) for name in names]):
        yield Degrees(**dict(zip(names, sizes, strict=True)))


def _factorizations(product: int, factors: list[int | None]) -> Iterator[tuple[int, ...]]:
    if not factors:
        if product == 1:
            yield ()
        return
    fixed, *rest = factors
    firsts = range(1, product + 1) if fixed is None else (fixed,)
    if fixed is None and not rest:
        firsts = (product,)
    for first in firsts:
        if product % first == 0:
            yield from ((first, *others) for others in _factorizations(product // first, rest))


def _possible(degrees: Degrees, shape: ModelShape, machines: Machines) -> bool:
    """Whether the model allows the degrees. Tensor parallelism communicates in every block, so it stays within a node."""
    return (
        degrees.tensor <= machines.slots_per_node
        and shape.heads % degrees.tensor == 0
        and shape.sequence % degrees.context == 0
        and degrees.pipeline <= max(1, shape.blocks)
    )


def _is_reproducible_as_asked(degrees: Degrees, request: PlanRequest) -> bool:
    """Whether the plan has the same bits on any number of ranks, if that is asked for: only replicas of whole models have."""
    return not request.reproducible or degrees.replicate == degrees.world_size


def _micro_batch_sizes(request: PlanRequest, degrees: Degrees) -> list[int]:
    """Return the micro-batch sizes to consider, ascending, such that each data rank has at least one micro-batch."""
    whole = request.global_batch_size // max(degrees.data, *request.also_replicas, 1)
    if request.micro_batch_size is not None:
        return [request.micro_batch_size] if request.micro_batch_size <= whole else []
    return sorted({whole, *(1 << power for power in range(whole.bit_length()))}) if whole else []


def _modes(shape: ModelShape, supported: SupportedPlans) -> list[Checkpointing]:
    return [mode for mode in get_args(Checkpointing) if mode in supported.activation_checkpointing and (mode == "none" or shape.blocks)]


def _preference(candidate: Candidate) -> tuple[float, int, int, str]:
    """Return the order of plans: the fastest first, then the plainest, since replicas survive the loss of a rank and need no other axis."""
    others = sum(count > 1 for axis, count in asdict(candidate.setup.degrees).items() if axis != "replicate")
    return candidate.time.total, others, candidate.memory.total, candidate.name


def _nothing(too_large: list[Candidate], request: PlanRequest, machines: Machines, supported: SupportedPlans) -> Choice:
    """Return the choice for when nothing fits, which says how much is missing and the ways out."""
    smallest, budget = too_large[0], budget_of(machines)
    ways = []
    if "full" not in supported.activation_checkpointing:
        more = replace(supported, activation_checkpointing=("full",))
        ways += ["full activation checkpointing"] if _fits(request, machines, more) else []
    nodes = next((count for count in _more_nodes(machines) if _fits(request, replace(machines, nodes=count, shares=()), supported)), None)
    ways += [f"{nodes} nodes of {plural(machines.slots_per_node, 'slot')}"] if nodes else []
    ways.append(f"slots with {size(int(smallest.memory.total / (1 - RESERVE)))} each")
    return Choice(None, words.why_nothing(smallest, budget, ways), budget, _rejected(too_large, budget))


def _more_nodes(machines: Machines) -> Iterator[int]:
    factor = 2
    while factor <= MOST_NODES:
        yield factor * machines.nodes
        factor *= 2


def _fits(request: PlanRequest, machines: Machines, supported: SupportedPlans) -> bool:
    """Whether any plan fits. Only the plans with the least memory are looked at: with a shard axis no two ranks hold the same."""
    axes = set(supported.axes) - ({"replicate"} if "shard" in supported.axes and not request.reproducible else set())
    leanest = replace(supported, axes=axes, activation_checkpointing=supported.activation_checkpointing[-1:])
    return any(group.fastest(budget_of(machines)) for groups in candidate_groups(request, machines, leanest) for group in groups)
