"""The estimated time of a step: which rank waits for which."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline.parallelism.model_shape import ModelShape
from paceline.parallelism.plan import Degrees
from paceline.parallelism.planning.machines import Link, Machines
from paceline.parallelism.planning.memory import TrainingSetup
from paceline.parallelism.planning.step_time import ACTIVATION_PASSES, loads_of, step_time
from tests.parallelism.planning.shapes import decoder

MACHINES = Machines(2, 1, 10**6, flops_per_second=1e6, within=Link(1e12, 0.0), between=Link(1e12, 0.0), layer_overhead_seconds=0.0)


def with_a_heavy_head() -> ModelShape:
    """A model whose last stage is the head alone, which takes a little longer than each of the blocks."""
    shape = decoder(blocks=1)
    layers = tuple(replace(layer, flops=11_000) if layer.name == "the head" else layer for layer in shape.layers)
    return replace(shape, layers=layers)


def test_a_pipeline_waits_for_the_stage_that_takes_longest_with_what_it_computes_again() -> None:
    shape, plain = with_a_heavy_head(), TrainingSetup(Degrees(pipeline=2), micro_batches=4)
    again = replace(plain, activation_checkpointing="full")
    assert len(loads_of(shape, plain)) == 2
    assert step_time(shape, plain, MACHINES).recompute == 0
    assert step_time(shape, again, MACHINES).recompute > 0
    assert step_time(shape, again, MACHINES).total > step_time(shape, plain, MACHINES).total


def test_loads_that_are_known_already_change_nothing() -> None:
    shape, setup = decoder(), TrainingSetup(Degrees(replicate=2), micro_batches=4)
    assert step_time(shape, setup, MACHINES) == step_time(shape, setup, MACHINES, loads_of(shape, setup))


def test_parameters_that_are_cut_over_ranks_are_updated_sooner() -> None:
    shape, machines = decoder(), replace(MACHINES, memory_bytes_per_second=1e6)
    whole, halves = TrainingSetup(Degrees(replicate=2), micro_batches=4), TrainingSetup(Degrees(shard=2), micro_batches=4)
    assert step_time(shape, whole, MACHINES).update == 0
    assert step_time(shape, whole, machines).update == 2 * step_time(shape, halves, machines).update > 0
    assert step_time(shape, replace(whole, optimizer="sgd"), machines).update < step_time(shape, whole, machines).update


def test_sharding_copies_parameters_in_each_micro_batch() -> None:
    """Replicas that fit must not lose to shards for the time of the update alone."""
    shape, slow = decoder(), replace(MACHINES, memory_bytes_per_second=1e6)
    shards = [step_time(shape, TrainingSetup(Degrees(shard=2), micro_batches=count), slow).communication for count in (2, 8)]
    alone = [step_time(shape, TrainingSetup(Degrees(shard=2), micro_batches=count), MACHINES).communication for count in (2, 8)]
    assert shards[1] - alone[1] == pytest.approx(4 * (shards[0] - alone[0]))
    replicas, sharded = (
        step_time(shape, TrainingSetup(degrees, micro_batches=2), slow) for degrees in (Degrees(replicate=2), Degrees(shard=2))
    )
    assert replicas.total < sharded.total


def test_communication_is_told_by_axis() -> None:
    setup = TrainingSetup(Degrees(replicate=2, shard=2, tensor=2), micro_batches=8)
    machines = replace(MACHINES, nodes=8, memory_bytes_per_second=1e6, between=Link(1e6, 1e-3), overlaps=False)
    time = step_time(decoder(), setup, machines)
    assert set(time.by_axis) == {"replicate", "shard", "tensor"}
    assert sum(time.by_axis.values()) == pytest.approx(time.communication)
    assert step_time(decoder(), TrainingSetup(Degrees(context=2)), replace(machines, nodes=2)).by_axis.keys() == {
        "context"
    }  # its ranks sum gradients too


def test_stages_of_an_interleaved_pipeline_make_one_rank_and_a_smaller_bubble() -> None:
    shape, plain = decoder(blocks=8), TrainingSetup(Degrees(pipeline=2), micro_batches=4)
    interleaved = replace(plain, pipeline_schedule="interleaved_1f1b", stages_per_rank=2)
    one, several = step_time(shape, plain, MACHINES), step_time(shape, interleaved, MACHINES)
    assert sum(load.flops for load in loads_of(shape, interleaved)) == shape.flops
    assert several.bubble < 0.6 * one.bubble
    assert several.compute == pytest.approx(one.compute, rel=0.2)


def test_only_units_are_gathered_twice() -> None:
    shape, machines = decoder(), replace(MACHINES, overlaps=False, within=Link(1e6, 0.0), between=Link(1e6, 0.0))
    small, units = (TrainingSetup(Degrees(shard=2), micro_batches=2, least_in_unit=least) for least in (10**6, 100))
    once, twice = (step_time(shape, each, machines).by_axis["shard"] for each in (small, units))
    assert once == pytest.approx(step_time(shape, replace(units, reshard_after_forward=False), machines).by_axis["shard"])
    assert twice == pytest.approx(once * (3 * 400 + 2 * 40) / (2 * 440))


def test_activations_take_the_time_that_they_are_written_and_read_in() -> None:
    shape, setup = decoder(), TrainingSetup(Degrees(), micro_batches=1, micro_batch_size=3)
    slow = replace(MACHINES, nodes=1, activation_bytes_per_second=1e6)
    saved = sum(layer.saved for layer in shape.layers)
    assert step_time(shape, setup, slow).memory == pytest.approx(ACTIVATION_PASSES * 3 * saved / 1e6)
    again = replace(setup, activation_checkpointing="full")
    assert step_time(shape, again, slow).memory > step_time(shape, setup, slow).memory


def test_ranks_of_one_machine_slow_each_other_down() -> None:
    shape, setup = decoder(), TrainingSetup(Degrees(replicate=2), micro_batches=2)
    shared = replace(MACHINES, nodes=1, slots_per_node=2, slowdown_beside_others=1.5)
    apart = replace(MACHINES, slowdown_beside_others=1.5)
    assert step_time(shape, setup, shared).compute == pytest.approx(1.5 * step_time(shape, setup, apart).compute)


def test_messages_of_a_tensor_axis_have_a_sequence_once() -> None:
    """Whether a rank keeps all of a block's input or its own part of it, the axis moves the whole sequence."""
    shape, setup = decoder(), TrainingSetup(Degrees(tensor=2))
    whole = replace(shape, layers=tuple(replace(layer, whole_input=layer.is_block) for layer in shape.layers))
    assert loads_of(shape, setup)[0].block_messages == loads_of(whole, setup)[0].block_messages == 4 * 20


def test_what_shards_a_model_takes_time_besides_its_messages() -> None:
    shape, unit = decoder(blocks=4), TrainingSetup(Degrees(shard=2), micro_batches=2, least_in_unit=100)
    slow = replace(MACHINES, tensor_overhead_seconds=1.0, gather_overhead_seconds=1.0)
    gathered, free = (step_time(shape, unit, machines).by_axis.get("shard", 0.0) for machines in (slow, MACHINES))
    assert gathered - free == pytest.approx(len(shape.layers))  # one micro-batch a rank
    summed, free = (step_time(shape, TrainingSetup(Degrees(tensor=2)), machines).by_axis["tensor"] for machines in (slow, MACHINES))
    assert summed - free == pytest.approx(4 * 4)  # four sums in each of four blocks


def test_messages_of_shards_may_take_longer_than_their_bytes() -> None:
    shape, setup = decoder(), TrainingSetup(Degrees(shard=2), micro_batches=2)
    link = replace(MACHINES, overlaps=False, within=Link(1e6, 0.0), between=Link(1e6, 0.0))
    usual, twice = (step_time(shape, setup, machines).by_axis["shard"] for machines in (link, replace(link, gather_slowdown=2.0)))
    assert twice == pytest.approx(2 * usual)


def test_messages_of_a_tensor_axis_may_take_longer_than_their_bytes() -> None:
    link = replace(MACHINES, within=Link(1e6, 0.0), between=Link(1e6, 0.0))
    usual, twice = (
        step_time(decoder(), TrainingSetup(Degrees(tensor=2)), machines).by_axis["tensor"]
        for machines in (link, replace(link, tensor_slowdown=2.0))
    )
    assert twice == pytest.approx(2 * usual)


def test_what_is_computed_again_is_launched_again() -> None:
    shape, setup = decoder(blocks=6), TrainingSetup(Degrees(), activation_checkpointing="full")
    slow = replace(MACHINES, layer_overhead_seconds=3.0)
    assert step_time(shape, setup, slow).recompute - step_time(shape, setup, MACHINES).recompute == pytest.approx(6 * 1.0)
