"""Made-up machines and the steps that they would take, so that a fit has a truth to find."""

from __future__ import annotations

from dataclasses import replace

from paceline.parallelism.model_shape import ModelShape
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.cost.parameters import MeasuredPlan
from paceline.parallelism.planning.cost.speeds import Speeds, of_cpu_slots
from paceline.parallelism.planning.machines import Link
from paceline.parallelism.planning.memory import TrainingSetup
from tests.parallelism.planning.shapes import decoder

START = of_cpu_slots(["fp32"])
#: Slower in some things and faster in others than what a fit begins with.
TRUTH = Speeds(
    {"fp32": 2e10},
    replace(
        START.machines,
        within=Link(3e8, 4e-4),
        layer_overhead_seconds=2e-4,
        slowdown_beside_others=1.2,
        activation_bytes_per_second=3e9,
        step_overhead_seconds=4e-3,
        tensor_overhead_seconds=9e-3,
        gather_overhead_seconds=1e-3,
        gather_slowdown=1.8,
        tensor_slowdown=3.0,
    ),
)


def large(blocks: int, scale: int) -> ModelShape:
    """Return a decoder whose layers take milliseconds."""
    shape = decoder(blocks)
    numbers = ("parameters", "saved", "input", "flops")
    layers = (replace(layer, **{name: scale * 1000 * getattr(layer, name) for name in numbers}) for layer in shape.layers)
    return replace(shape, layers=tuple(layers))


def setups() -> list[TrainingSetup]:
    degrees = (Degrees(), Degrees(replicate=2), Degrees(shard=2), Degrees(tensor=2), Degrees(pipeline=2))
    return [TrainingSetup(each, micro_batch_size=size, micro_batches=4) for each in degrees for size in (2, 8)]


def measured(speeds: Speeds = TRUTH) -> list[MeasuredPlan]:
    """Return what machines of these speeds would take for plans of three models."""
    shapes = [large(2, 1), large(4, 1), large(2, 3)]
    return [MeasuredPlan(shape, setup, speeds.predict(shape, setup).seconds) for shape in shapes for setup in setups()]
