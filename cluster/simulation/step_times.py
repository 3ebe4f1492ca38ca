"""The performance model: how long a step of a job takes on simulated machines, and where its time goes. Pure.

The parts of a step are those of the planner (`parallelism.planning.step_time`: arithmetic, message sizes and link speeds) at the share of
the card's peak that plans assume, over the links of `machines`. What the planner does not know the shape of (scripts, entrypoints, some models of transformers) takes
SECONDS_PER_SAMPLE. On top of it come the differences between cards and between steps:

    card         each card is slower or faster by CARD_SPREAD (standard deviation); one in STRAGGLER_ODDS takes STRAGGLER_SHARE longer
    step         the computing of each rank varies by STEP_SPREAD from step to step
    waiting      the ranks of a gang end a step together: a rank that was done earlier waits, and that is exposed communication
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.cluster.simulation.machines import BETWEEN, WITHIN, CardModel
from paceline.monitoring.devices import peak_of
from paceline.monitoring.points import communication
from paceline.parallelism.model_shape import CUDA, NumberFormats
from paceline.parallelism.planning.hardware_defaults import GPUS, SHARE_OF_PEAK
from paceline.parallelism.planning.machines import Machines
from paceline.parallelism.planning.step_time import BACKWARD_OF_FORWARD, StepTimeEstimate, step_time
from paceline.training.models.catalog import parameter_count
from paceline.training.planning.estimates import memory_of, setup_of
from paceline.training.spec import derived
from paceline.training.spec.job import JobSpec
from paceline.training.spec.workload import BuiltinWorkload, ScriptWorkload

#: The time of a forward and backward of a model without a known shape, and the bytes that such a rank holds.
SECONDS_PER_SAMPLE = 0.02
UNKNOWN_MEMORY = 24 << 30
UNKNOWN_PARAMETERS = 50_000_000
#: A script's global batch and steps are its own affair; these stand for them.
SCRIPT_BATCH, SCRIPT_STEPS = 256, 1000
BYTES_OF_GRADIENT = 4
CARD_SPREAD, STEP_SPREAD = 0.01, 0.02
STRAGGLER_ODDS, STRAGGLER_SHARE = 100, 0.2
#: Shares of a rank's computing: reading its batch, and what is left over.
DATA_SHARE, OTHER_SHARE = 0.01, 0.005


@dataclass(frozen=True)
class StepCost:
    """The cost of one step of a gang for each of its ranks, before any noise. Seconds and bytes."""

    forward: float
    backward: float
    communication: float  # exposed, also on the rank that the others wait for
    overlapped: float
    optimizer: float
    samples: int  # of a step, over all ranks
    memory_bytes: int
    sent: dict[str, float] = field(default_factory=dict)  # by axis
    bubble: float | None = None  # share of a step

    @property
    def computing(self) -> float:
        return self.forward + self.backward


@dataclass(frozen=True)
class GangStep:
    """One step as its ranks measure it. `seconds` is the same for all."""

    seconds: float
    ranks: tuple[dict[str, float], ...]  # metrics by rank


def cost_of(spec: JobSpec, ranks: int, slots_per_node: int, card: CardModel) -> StepCost:
    """The cost of a step of `spec` on `ranks` ranks."""
    if isinstance(spec.workload, ScriptWorkload):
        return _unknown(SCRIPT_BATCH, ranks)
    batch, shape = derived.training_of(spec).global_batch_size, derived.known_shape(spec, NumberFormats(spec.precision, CUDA))
    memory = memory_of(spec, CUDA, ranks) if shape is not None else None
    if shape is None or memory is None:
        return _unknown(batch, ranks)
    setup = setup_of(spec, ranks)
    time = step_time(shape, setup, _machines(ranks, slots_per_node, card, spec.precision))
    arithmetic = time.compute + time.recompute + time.bubble
    parameters = parameters_of(spec)
    gradients = parameters * BYTES_OF_GRADIENT / (setup.degrees.shard * setup.degrees.tensor * setup.degrees.pipeline)
    sent = {axis: 2 * (size - 1) / size * gradients for axis, size in _axes(setup.degrees).items()}
    return StepCost(
        forward=arithmetic / (1 + BACKWARD_OF_FORWARD),
        backward=arithmetic * BACKWARD_OF_FORWARD / (1 + BACKWARD_OF_FORWARD),
        communication=time.communication,
        overlapped=_overlapped(time, sum(sent.values())),
        optimizer=time.update,
        samples=batch,
        memory_bytes=memory.total,
        sent=sent,
        bubble=time.bubble / time.total if setup.degrees.pipeline > 1 else None,
    )


def speeds_of(places: Sequence[str]) -> tuple[float, ...]:
    """How much longer each card takes than the model says: 1.0 is as fast. The same card is always the same. `places` name them."""
    return tuple(_speed(place) for place in places)


def _speed(place: str) -> float:
    drawn = random.Random(place)
    straggles = drawn.randrange(STRAGGLER_ODDS) == 0
    return max(0.9, drawn.gauss(1.0, CARD_SPREAD)) + (STRAGGLER_SHARE if straggles else 0.0)


def gang_step(cost: StepCost, speeds: Sequence[float], drawn: random.Random) -> GangStep:
    """Draw one step of a gang. `speeds`: of its ranks' cards, in rank order."""
    factors = [speed * max(0.5, drawn.gauss(1.0, STEP_SPREAD)) for speed in speeds]
    slowest = max(factors)
    ranks = tuple(_measured(cost, factor, slowest) for factor in factors)
    return GangStep(ranks[0]["step_seconds"], ranks)


def typical_seconds(cost: StepCost) -> float:
    """The seconds of a step of equal cards without noise."""
    return cost.computing * (1 + DATA_SHARE + OTHER_SHARE) + cost.communication + cost.optimizer


def _measured(cost: StepCost, factor: float, slowest: float) -> dict[str, float]:
    """What a rank measures whose card takes `factor` times as long, beside one that takes `slowest` times as long."""
    waits = (slowest - factor) * cost.computing * (1 + DATA_SHARE + OTHER_SHARE)
    parts = {
        "data_seconds": factor * cost.computing * DATA_SHARE,
        "forward_seconds": factor * cost.forward,
        "backward_seconds": factor * cost.backward,
        "communication_seconds": cost.communication + waits,
        "optimizer_seconds": cost.optimizer,
        "other_seconds": factor * cost.computing * OTHER_SHARE,
    }
    fixed = {"memory_bytes": float(cost.memory_bytes), "peak_memory_bytes": cost.memory_bytes * 1.06}
    return {"step_seconds": sum(parts.values()), **parts, **fixed, **communication(cost.sent, cost.overlapped)}


def _machines(ranks: int, slots_per_node: int, card: CardModel, precision: str) -> Machines:
    peak = peak_of(card.name, precision)
    here = min(ranks, slots_per_node)
    return Machines(
        nodes=max(1, ranks // here),
        slots_per_node=here,
        memory_bytes=card.memory_bytes,
        flops_per_second=SHARE_OF_PEAK * peak.flops if peak else GPUS.flops_per_second,
        within=WITHIN,
        between=BETWEEN,
        overlaps=GPUS.overlaps,
        memory_bytes_per_second=GPUS.memory_bytes_per_second,
    )


def _axes(degrees: object) -> dict[str, int]:
    sizes = {axis: int(getattr(degrees, axis)) for axis in ("pipeline", "replicate", "shard", "context", "tensor")}
    return {axis: size for axis, size in sizes.items() if size > 1}


def _overlapped(time: StepTimeEstimate, sent_bytes: float) -> float:
    """Communication that backward hides: at the links' speed, and no longer than backward takes."""
    hidden = sent_bytes / WITHIN.bytes_per_second - time.communication
    return min(max(0.0, hidden), time.compute * BACKWARD_OF_FORWARD / (1 + BACKWARD_OF_FORWARD))


def parameters_of(spec: JobSpec) -> int:
    """The parameters of the job's model, or what stands for them where nothing is known."""
    match spec.workload:
        case BuiltinWorkload(model, data):
            return parameter_count(model, data) or UNKNOWN_PARAMETERS
    return UNKNOWN_PARAMETERS


def _unknown(batch: int, ranks: int) -> StepCost:
    arithmetic = SECONDS_PER_SAMPLE * -(-batch // ranks)
    sent = {"world": 2.0 * (ranks - 1) / ranks * UNKNOWN_PARAMETERS * BYTES_OF_GRADIENT} if ranks > 1 else {}
    seconds = sum(sent.values()) / BETWEEN.bytes_per_second
    return StepCost(
        forward=arithmetic / 3,
        backward=2 * arithmetic / 3,
        communication=0.3 * seconds,
        overlapped=0.7 * seconds,
        optimizer=0.003,
        samples=batch,
        memory_bytes=UNKNOWN_MEMORY,
        sent=sent,
    )
