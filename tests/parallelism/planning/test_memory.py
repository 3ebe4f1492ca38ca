"""Counted by hand on made-up shapes. What real models take is in `test_memory_measured.py`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.parallelism.model_shape import ModelShape
from paceline.parallelism.plan import Degrees, assign_evenly, assign_remaining
from paceline.parallelism.planning.gradient_copies import in_buckets, in_place, in_tree
from paceline.parallelism.planning.memory import Checkpointing, TrainingSetup, memory, stages_of
from tests.parallelism.planning.shapes import BLOCK, decoder

ALONE = TrainingSetup(Degrees())
ELEMENTS = 4 * 100 + 40
KEPT = 8 + 4 * 1000 + 60


def test_parameters_and_optimizer_are_fp32() -> None:
    found = memory(decoder(), ALONE)
    assert (found.parameters, found.optimizer) == (4 * ELEMENTS, 8 * ELEMENTS)
    assert memory(decoder(), replace(ALONE, optimizer="sgd", precision="bf16")).optimizer == 4 * ELEMENTS


def test_the_fullest_moment_is_reported_and_not_a_sum_of_largest_parts() -> None:
    """The last block's backward holds most of one sample: all that is kept but the head's and the loss's, and two gradients."""
    found = memory(decoder(), ALONE)
    assert found.moment == "in the backward of a block"
    assert found.activations == 8 + 4 * 1000 + 50
    assert found.gradients == 4 * (40 + 100)
    assert found.total == found.parameters + found.gradients + found.optimizer + found.activations


def test_at_the_loss_no_gradient_is_there_yet() -> None:
    shape = decoder()
    wide = replace(shape.layers[-1], saved=10_000, working=20_000)
    found = memory(replace(shape, layers=(*shape.layers[:-1], wide)), ALONE)
    assert found.moment == "in the backward of the loss"
    assert (found.gradients, found.activations) == (0, KEPT + 30_000)


def test_a_tied_matrix_gets_its_second_gradient_last() -> None:
    found = memory(decoder(), replace(ALONE, activation_checkpointing="full", micro_batch_size=0))
    assert found.gradients == 4 * (ELEMENTS + 40)
    assert found.moment in ("in the backward of the embedding", "at the end of backward")


def test_later_micro_batches_find_gradients_there() -> None:
    found = memory(decoder(), replace(ALONE, micro_batches=2))
    assert found.gradients == 4 * (ELEMENTS + 100)


@pytest.mark.parametrize(("mode", "kept"), [("none", 1000), ("selective", 320), ("full", 20)])
def test_a_checkpointed_block_keeps_its_input_and_is_whole_only_while_it_is_worked_on(mode: Checkpointing, kept: int) -> None:
    found = memory(decoder(), replace(ALONE, activation_checkpointing=mode, micro_batches=2))
    assert found.activations == 8 + 3 * kept + 1000 + 50


def test_autocast_copies_the_weights_of_products() -> None:
    fp32, bf16 = memory(decoder(), ALONE), memory(decoder(), replace(ALONE, precision="bf16"))
    assert bf16.activations - fp32.activations == 2 * 4 * BLOCK.matrices


def test_sharding_cuts_what_stays_and_gathers_the_unit_at_hand() -> None:
    sharded = replace(ALONE, degrees=Degrees(shard=4), least_in_unit=1)
    found = memory(decoder(), sharded)
    assert (found.parameters, found.optimizer) == (ELEMENTS, 2 * ELEMENTS)
    whole = 40 + 100 + 100  # the head's, this block's, and the one's before it
    fresh = 40 + 100
    assert found.buffers == 4 * (whole + fresh)
    zero2 = memory(decoder(), replace(sharded, reshard_after_forward=False))
    assert zero2.buffers == 4 * (40 + 4 * 100 + fresh)


def test_the_last_part_is_held_twice_until_the_model_returns() -> None:
    """It is held as it was gathered, in one buffer, and as parameters. Here the whole model is one unit."""
    found = memory(decoder(), replace(ALONE, degrees=Degrees(shard=4)))
    assert found.moment == "at the model's outputs"
    assert found.buffers == 2 * 4 * ELEMENTS
    outputs = 16
    assert found.activations == 8 + 4 * 1000 + 60 + outputs


def test_gradients_are_exchanged_in_fp32_beside_what_the_others_send() -> None:
    found = memory(decoder(), replace(ALONE, degrees=Degrees(shard=4), precision="bf16", micro_batch_size=0))
    assert found.moment == "in the exchange of the last gradients"
    assert found.buffers == 4 * (ELEMENTS + ELEMENTS * 3 // 4)
    assert found.gradients == ELEMENTS


def test_offloaded_state_is_on_the_host() -> None:
    sharded = replace(ALONE, degrees=Degrees(shard=4))
    on_device, offloaded = memory(decoder(), sharded), memory(decoder(), replace(sharded, cpu_offload=True))
    assert (offloaded.parameters, offloaded.gradients, offloaded.optimizer) == (0, 0, 0)
    assert offloaded.total + offloaded.host == on_device.total


def test_the_first_stage_of_a_pipeline_holds_as_many_micro_batches_as_there_are_stages() -> None:
    found = memory(decoder(), replace(ALONE, degrees=Degrees(pipeline=2), micro_batches=8))
    stage = 8 + 2 * 1000
    assert found.activations == stage + stage + 50
    assert found.parameters == 4 * (200 + 40)  # the embedding's own copy of the tied matrix


def test_a_sharded_stage_gathers_its_copy_of_a_tied_matrix() -> None:
    """Whole beside it: the gradient of the second block, in whose backward most is there."""
    found = memory(decoder(), replace(ALONE, degrees=Degrees(pipeline=2, shard=2), micro_batches=8))
    assert found.parameters == 4 * (200 + 40) // 2
    assert found.buffers == 4 * (200 + 40 + 100)


def test_stages_share_out_the_blocks() -> None:
    stages = stages_of(decoder(blocks=5), TrainingSetup(Degrees(pipeline=3)))
    assert [sum(layer.is_block for layer in stage) for stage in stages] == [2, 2, 1]
    assert [stages[0][0].name, stages[-1][-1].name] == ["the embedding", "the loss"]


def test_what_a_split_backward_puts_off_counts_where_it_is_more_than_what_it_frees() -> None:
    """Zero-bubble V on two ranks: four micro-batches are on their way through one stage each, then four have gone back through one of the second."""
    setup = replace(ALONE, degrees=Degrees(pipeline=2), micro_batches=8, pipeline_schedule="zero_bubble_v", stages_per_rank=2)
    assert [sum(layer.is_block for layer in stage) for stage in stages_of(decoder(), setup)] == [1, 1, 1, 1]
    nothing, less, more = (memory(putting_off(count), setup) for count in (0, 600, 3000))
    assert nothing.activations == less.activations > 2 * 2 * 1000
    assert more.moment == "at the gradients of the weights of a block"
    assert more.activations == 2 * 2 * 3000


def putting_off(count: int) -> ModelShape:
    return replace(decoder(), layers=tuple(replace(layer, deferred=count if layer.is_block else 0) for layer in decoder().layers))


def test_the_first_stage_waits_for_nothing_and_goes_back_in_one() -> None:
    """Zero bubble on two ranks: the first stage has no inputs that learn."""
    setup = replace(ALONE, degrees=Degrees(pipeline=2), micro_batches=8, pipeline_schedule="zero_bubble")
    shape = decoder()
    small_end = replace(shape, layers=(*shape.layers[:3], *(replace(layer, saved=0, deferred=0) for layer in shape.layers[3:])))
    stage = 8 + 2 * 1000
    assert memory(small_end, setup).activations == stage + stage + 50


def test_replicas_of_a_pipeline_pack_their_gradients_once() -> None:
    setup = replace(ALONE, degrees=Degrees(pipeline=2, replicate=2), micro_batches=2, micro_batch_size=0)
    assert memory(decoder(), setup).buffers == 4 * (200 + 40)


@pytest.mark.parametrize("axis", ["tensor", "context"])
def test_cutting_matrices_or_sequences_halves_activations(axis: str) -> None:
    found, whole = memory(decoder(), replace(ALONE, degrees=Degrees(**{axis: 2}))), memory(decoder(), ALONE)
    assert found.activations == whole.activations // 2
    assert found.parameters == whole.parameters // (2 if axis == "tensor" else 1)


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 9))
def test_no_rank_holds_more_copies_than_the_fullest(micro_batches: int, ranks: int) -> None:
    copies = in_tree(assign_evenly(micro_batches, ranks))
    assert copies.after >= 1 or micro_batches < ranks
    assert copies.packed >= 1
    assert copies.most <= 3 * (micro_batches.bit_length() + 1)


def test_copies_of_the_gradients() -> None:
    assert [in_tree(assign_evenly(8, ranks)).most for ranks in (1, 2, 8)] == [5, 3 + 1 + 0.5, 1 + 1 + 7 / 8]
    assert in_tree(assign_remaining(8, [(0, 2, 4), ()])).most > in_tree(assign_evenly(8, 2)).most  # scattered shares make more subtrees
    assert (in_place(1).before, in_place(2).before) == (0, 1)
    assert (in_buckets(1).before, in_buckets(2).before) == (1, 2)
