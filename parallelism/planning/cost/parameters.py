"""The parameters that measured steps can show: each a positive number of `Speeds`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from paceline.parallelism.model_shape import ModelShape, Precision
from paceline.parallelism.planning.cost.speeds import Speeds
from paceline.parallelism.planning.machines import Machines
from paceline.parallelism.planning.memory import TrainingSetup
from paceline.parallelism.planning.step_time import StageLoad, loads_of


@dataclass(frozen=True)
class MeasuredPlan:
    """A step that was measured."""

    shape: ModelShape
    setup: TrainingSetup
    seconds: float
    ranks_by_node: tuple[int, ...] = ()  # empty: all ranks on one machine

    @cached_property
    def loads(self) -> tuple[StageLoad, ...]:
        return loads_of(self.shape, self.setup)

    @property
    def communicates(self) -> bool:
        return self.setup.degrees.world_size > 1

    @property
    def spans_machines(self) -> bool:
        return len(self.ranks_by_node) > 1


@dataclass(frozen=True)
class Parameter:
    """One positive number of `Speeds`, and which trials show it."""

    name: str
    get: Callable[[Speeds], float]
    put: Callable[[Speeds, float], Speeds]
    shown_by: Callable[[MeasuredPlan], bool] = lambda plan: True


def of_rate(precision: Precision) -> Parameter:
    return Parameter(
        f"rate of products in {precision}",
        lambda speeds: speeds.flops_per_second[precision],
        lambda speeds, value: replace(speeds, flops_per_second={**speeds.flops_per_second, precision: value}),
        lambda plan: plan.setup.precision == precision,
    )


def of_machines(
    name: str,
    get: Callable[[Machines], float],
    put: Callable[[Machines, float], Machines],
    shown_by: Callable[[MeasuredPlan], bool] = lambda plan: True,
) -> Parameter:
    return Parameter(
        name,
        lambda speeds: get(speeds.machines),
        lambda speeds, value: replace(speeds, machines=put(speeds.machines, value)),
        shown_by,
    )


LAYER_OVERHEAD = of_machines(
    "overhead of a layer", lambda on: on.layer_overhead_seconds, lambda on, value: replace(on, layer_overhead_seconds=value)
)
STEP_OVERHEAD = of_machines(
    "overhead of a step", lambda on: on.step_overhead_seconds, lambda on, value: replace(on, step_overhead_seconds=value)
)
TENSOR_OVERHEAD = of_machines(
    "overhead of a sum of tensor parallelism",
    lambda on: on.tensor_overhead_seconds,
    lambda on, value: replace(on, tensor_overhead_seconds=value),
    lambda plan: plan.setup.degrees.tensor > 1,
)
TENSOR_SLOWDOWN = of_machines(
    "slowdown of the messages of tensor parallelism",
    lambda on: on.tensor_slowdown,
    lambda on, value: replace(on, tensor_slowdown=value),
    lambda plan: plan.setup.degrees.tensor > 1,
)
GATHER_OVERHEAD = of_machines(
    "overhead of a layer that FSDP shards",
    lambda on: on.gather_overhead_seconds,
    lambda on, value: replace(on, gather_overhead_seconds=value),
    lambda plan: plan.setup.degrees.shard > 1,
)
GATHER_SLOWDOWN = of_machines(
    "slowdown of FSDP's messages",
    lambda on: on.gather_slowdown,
    lambda on, value: replace(on, gather_slowdown=value),
    lambda plan: plan.setup.degrees.shard > 1,
)
WEIGHTS = of_machines(
    "memory bandwidth of weights", lambda on: on.memory_bytes_per_second, lambda on, value: replace(on, memory_bytes_per_second=value)
)
ACTIVATIONS = of_machines(
    "memory bandwidth of activations",
    lambda on: on.activation_bytes_per_second,
    lambda on, value: replace(on, activation_bytes_per_second=value),
)
SLOWDOWN = of_machines(
    "slowdown beside other ranks",
    lambda on: on.slowdown_beside_others,
    lambda on, value: replace(on, slowdown_beside_others=value),
    lambda plan: plan.communicates and max(plan.ranks_by_node or (2,)) > 1,
)
BANDWIDTH = of_machines(
    "bandwidth within a machine",
    lambda on: on.within.bytes_per_second,
    lambda on, value: replace(on, within=replace(on.within, bytes_per_second=value)),
    lambda plan: plan.communicates and not plan.spans_machines,
)
LATENCY = of_machines(
    "latency within a machine",
    lambda on: on.within.latency_seconds,
    lambda on, value: replace(on, within=replace(on.within, latency_seconds=value)),
    lambda plan: plan.communicates and not plan.spans_machines,
)
NETWORK_BANDWIDTH = of_machines(
    "bandwidth between machines",
    lambda on: on.between.bytes_per_second,
    lambda on, value: replace(on, between=replace(on.between, bytes_per_second=value)),
    lambda plan: plan.spans_machines,
)
NETWORK_LATENCY = of_machines(
    "latency between machines",
    lambda on: on.between.latency_seconds,
    lambda on, value: replace(on, between=replace(on.between, latency_seconds=value)),
    lambda plan: plan.spans_machines,
)
#: After the rates of products: the most important first. Links, and what sharding takes besides messages, come before the overheads of layers and steps:
#: few trials are mostly of one model under several plans, of which these take the same part as products do, while plans differ in what they send.
IN_ORDER = (
    BANDWIDTH,
    NETWORK_BANDWIDTH,
    SLOWDOWN,
    GATHER_SLOWDOWN,
    TENSOR_OVERHEAD,
    TENSOR_SLOWDOWN,
    LAYER_OVERHEAD,
    ACTIVATIONS,
    GATHER_OVERHEAD,
    LATENCY,
    NETWORK_LATENCY,
    WEIGHTS,
    STEP_OVERHEAD,
)


def parameters_for(plans: Sequence[MeasuredPlan]) -> list[Parameter]:
    """Return the parameters that these trials can show, the most important first, and no more than half as many as there are trials; but the
    rate of products in each precision.
    """
    rates = [of_rate(precision) for precision in sorted({plan.setup.precision for plan in plans})]
    shown = [each for each in (*rates, *IN_ORDER) if any(map(each.shown_by, plans))]
    return shown[: max(len(rates), len(plans) // 2)]
