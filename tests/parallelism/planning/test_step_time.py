"""The estimated time of a step: which rank waits for which."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.parallelism.model_shape import ModelShape
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.memory import Setup
from paceline.parallelism.planning.step_time import Link, Machines, loads_of, step_time
from tests.parallelism.planning.shapes import decoder

MACHINES = Machines(2, 1, 10**6, flops_per_second=1e6, within=Link(1e12, 0.0), between=Link(1e12, 0.0), layer_overhead_seconds=0.0)


def with_a_heavy_head() -> ModelShape:
    """A model whose last stage is the head alone, which takes a little longer than each of the blocks."""
    shape = decoder(blocks=1)
    layers = tuple(replace(layer, flops=11_000) if layer.name == "the head" else layer for layer in shape.layers)
    return replace(shape, layers=layers)


def test_a_pipeline_waits_for_the_stage_that_takes_longest_with_what_it_computes_again() -> None:
    shape, plain = with_a_heavy_head(), Setup(Degrees(pipeline=2), micro_batches=4)
    again = replace(plain, activation_checkpointing="full")
    assert len(loads_of(shape, plain)) == 2
    assert step_time(shape, plain, MACHINES).recompute == 0
    assert step_time(shape, again, MACHINES).recompute > 0
    assert step_time(shape, again, MACHINES).total > step_time(shape, plain, MACHINES).total


def test_loads_that_are_known_already_change_nothing() -> None:
    shape, setup = decoder(), Setup(Degrees(replicate=2), micro_batches=4)
    assert step_time(shape, setup, MACHINES) == step_time(shape, setup, MACHINES, loads_of(shape, setup))


def test_parameters_that_are_cut_over_ranks_are_updated_sooner() -> None:
    shape, machines = decoder(), replace(MACHINES, memory_bytes_per_second=1e6)
    whole, halves = Setup(Degrees(replicate=2), micro_batches=4), Setup(Degrees(shard=2), micro_batches=4)
    assert step_time(shape, whole, MACHINES).update == 0
    assert step_time(shape, whole, machines).update == 2 * step_time(shape, halves, machines).update > 0
    assert step_time(shape, replace(whole, optimizer="sgd"), machines).update < step_time(shape, whole, machines).update


def test_sharding_copies_parameters_in_each_micro_batch() -> None:
    """Replicas that fit must not lose to shards for the time of the update alone."""
    shape, slow = decoder(), replace(MACHINES, memory_bytes_per_second=1e6)
    shards = [step_time(shape, Setup(Degrees(shard=2), micro_batches=count), slow).communication for count in (2, 8)]
    alone = [step_time(shape, Setup(Degrees(shard=2), micro_batches=count), MACHINES).communication for count in (2, 8)]
    assert shards[1] - alone[1] == pytest.approx(4 * (shards[0] - alone[0]))
    replicas, sharded = (step_time(shape, Setup(degrees, micro_batches=2), slow) for degrees in (Degrees(replicate=2), Degrees(shard=2)))
    assert replicas.total < sharded.total
