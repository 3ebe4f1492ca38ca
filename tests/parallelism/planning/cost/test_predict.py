"""Predictions on stated machines: parts that add up, worlds that fit the plan, networks that have to be stated."""

from __future__ import annotations

import pytest

from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.cost.devices import device_named
from paceline.parallelism.planning.cost.links import link_named
from paceline.parallelism.planning.cost.predict import Platform, predict
from paceline.parallelism.planning.memory import TrainingSetup, memory
from tests.parallelism.planning.cost.machines import large

V100 = device_named("Tesla V100-SXM2-16GB")
NODES = Platform(V100, 8, link_named("100 Gbit/s InfiniBand"), adapters=4)
SHAPE = large(4, 100)


def test_the_parts_of_a_step_add_up() -> None:
    setup = TrainingSetup(Degrees(pipeline=2, tensor=2, replicate=4), micro_batches=16, activation_checkpointing="full")
    step = predict(SHAPE, setup, NODES.machines(16, V100.rate("fp32")))
    assert sum(step.split.values()) == pytest.approx(step.seconds)
    assert {"products", "memory traffic", "bubble", "update", "exposed communication, tensor"} <= set(step.split)
    assert step.memory == memory(SHAPE, setup)


def test_machines_are_as_many_as_the_ranks_take() -> None:
    machines = NODES.machines(32, 1e12)
    assert (machines.nodes, machines.slots_per_node, machines.world_size) == (4, 8, 32)
    assert machines.between.bytes_per_second == pytest.approx(4 * 12.5e9 * 120 / 128)
    assert NODES.machines(2, 1e12).world_size == 2


def test_a_network_that_is_not_stated_is_not_guessed() -> None:
    alone = Platform(V100, 8)
    assert alone.machines(8, 1e12).nodes == 1
    with pytest.raises(ValueError, match="16 ranks take several machines of 8, and no network between them is stated"):
        alone.machines(16, 1e12)


def test_a_plan_for_another_world_is_refused() -> None:
    with pytest.raises(ValueError, match="the plan takes 4 ranks, but the machines have 8 slots; use as many"):
        predict(SHAPE, TrainingSetup(Degrees(replicate=4)), NODES.machines(8, 1e12))


def test_what_does_not_fit_says_so() -> None:
    setup, machines = TrainingSetup(Degrees()), NODES.machines(1, 1e12)
    assert predict(SHAPE, setup, machines).fits
    assert not predict(large(4, 100_000), setup, machines).fits
