"""The sizes of the mesh's axes, and the assignment of micro-batches to data ranks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.parallelism.mesh import rank_grid
from paceline.parallelism.plan import (
    AXES,
    Coordinates,
    Degrees,
    StateShard,
    WorldSizeMismatchError,
    assign_evenly,
    assign_remaining,
    degrees,
    partition,
    state_shards,
)


@given(st.integers(0, 200), st.integers(1, 20))
def test_shares_cover_everything_once_in_order_and_differ_by_one_at_most(total: int, replicas: int) -> None:
    shares = [partition(total, replica, replicas) for replica in range(replicas)]
    assert [index for part in shares for index in part] == list(range(total))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


@st.composite
def kept(draw: st.DrawFn) -> tuple[int, list[list[int]]]:
    """Some of a step's micro-batches, each with one rank at most; newcomers have none."""
    micro_batches, ranks = draw(st.integers(1, 40)), draw(st.integers(1, 8))
    owners = draw(st.lists(st.one_of(st.none(), st.integers(0, ranks - 1)), min_size=micro_batches, max_size=micro_batches))
    return micro_batches, [[index for index, owner in enumerate(owners) if owner == rank] for rank in range(ranks)]


@given(kept())
def test_what_is_kept_stays_and_the_rest_is_shared_out_evenly(case: tuple[int, list[list[int]]]) -> None:
    micro_batches, held = case
    assignment = assign_remaining(micro_batches, held)
    assert sorted(index for share in assignment.shares for index in share) == list(range(micro_batches))
    new = [sorted(set(share) - set(mine)) for share, mine in zip(assignment.shares, held, strict=True)]
    assert all(set(mine) <= set(share) for mine, share in zip(held, assignment.shares, strict=True))
    assert all(list(share) == sorted(share) for share in assignment.shares)
    assert max(map(len, new)) - min(map(len, new)) <= 1
    busier = [len(mine) for mine, more in zip(held, new, strict=True) if len(more) > min(map(len, new))]
    others = [len(mine) for mine, more in zip(held, new, strict=True) if len(more) == min(map(len, new))]
    assert max(busier, default=0) <= min(others)  # those that keep least


@given(st.integers(1, 60), st.integers(1, 9))
def test_where_nothing_is_kept_the_deal_is_the_even_one(micro_batches: int, ranks: int) -> None:
    assert assign_remaining(micro_batches, [()] * ranks) == assign_evenly(micro_batches, ranks)
    assert assign_evenly(micro_batches, ranks).shares == tuple(tuple(partition(micro_batches, rank, ranks)) for rank in range(ranks))


@settings(deadline=None)  # a busy machine takes its time
@given(st.integers(1, 200), st.integers(1, 9), st.integers(1, 9))
def test_the_largest_share_is_that_of_the_deal(micro_batches: int, replicate: int, shard: int) -> None:
    world = Degrees(replicate=replicate, shard=shard)
    assert world.max_per_data_rank(micro_batches) == world.assignment(micro_batches).max_per_rank


def test_newcomers_take_the_larger_part() -> None:
    assert assign_remaining(6, [(0, 1), (4,), ()]).shares == ((0, 1, 2), (3, 4), (5,))
    assert assign_remaining(6, [(0, 1), (4, 5), ()]).shares == ((0, 1, 2), (4, 5), (3,))
    assert assign_remaining(7, [(0, 1), (4, 5), ()]).shares == ((0, 1, 2), (3, 4, 5), (6,))
    assert assign_remaining(6, [(), (0, 1), (4, 5)]).shares == ((2,), (0, 1, 3), (4, 5))


def test_degrees_multiply_to_the_world() -> None:
    assert degrees("ddp", 4).world_size == 4
    assert degrees("single", 1).replicate == 1


def test_what_a_micro_batch_takes_leaves_the_rest_to_the_data() -> None:
    assert degrees("ddp", 8, tensor=2, context=2) == Degrees(replicate=2, tensor=2, context=2)
    assert degrees("fsdp", 8, tensor=2) == Degrees(shard=4, tensor=2)
    assert degrees("fsdp", 8, tensor=2, shard=2) == Degrees(replicate=2, shard=2, tensor=2)
    assert degrees("ddp", 2, pipeline=2) == Degrees(pipeline=2)


def test_what_does_not_fit_names_the_way_out() -> None:
    with pytest.raises(
        WorldSizeMismatchError, match="context=2 x tensor=3 does not divide world size 8; use 6 or 12 ranks, or degrees whose"
    ):
        degrees("ddp", 8, tensor=3, context=2)
    with pytest.raises(WorldSizeMismatchError, match="tensor=2 does not divide world size 1; use 2 ranks"):
        degrees("ddp", 1, tensor=2)
    with pytest.raises(WorldSizeMismatchError, match="shard=3 does not divide world size 8 / tensor=2 = 4 data ranks; use a divisor of 4"):
        degrees("fsdp", 8, shard=3, tensor=2)
    with pytest.raises(WorldSizeMismatchError, match="the world has 2 ranks; use ddp"):
        degrees("single", 2)
    with pytest.raises(WorldSizeMismatchError, match="replicate=any x shard=3 does not divide world size 4; use a divisor of 4"):
        degrees("fsdp", 4, shard=3)
    with pytest.raises(WorldSizeMismatchError, match="replicate=8 x shard=any does not divide world size 4"):
        degrees("fsdp", 4, replicate=8)


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        (Degrees(replicate=3), [(), (), ()]),
        (Degrees(replicate=2, shard=2), [(("shard", 0, 2),), (("shard", 1, 2),)] * 2),
        (Degrees(context=2, tensor=2), [(("tensor", 0, 2),), (("tensor", 1, 2),)] * 2),
        (Degrees(pipeline=2, replicate=2), [(("pipeline", 0, 2),)] * 2 + [(("pipeline", 1, 2),)] * 2),
    ],
)
def test_replicas_hold_the_same_part_of_the_state(sizes: Degrees, parts: list[StateShard]) -> None:
    assert list(state_shards(sizes)) == parts


@given(st.integers(1, 12), st.integers(1, 12))
def test_what_is_not_said_of_the_axes_follows_from_the_world(replicate: int, shard: int) -> None:
    found = Degrees(replicate=replicate, shard=shard)
    world_size = replicate * shard
    assert degrees("fsdp", world_size, replicate=replicate) == degrees("fsdp", world_size, shard=shard) == found
    assert degrees("fsdp", world_size, replicate=replicate, shard=shard) == found
    assert degrees("fsdp", world_size) == Degrees(shard=world_size)


SIZES = st.builds(Degrees, *[st.integers(1, 3)] * len(AXES))


@given(SIZES)
def test_coordinates_are_those_of_the_mesh(sizes: Degrees) -> None:
    mesh = rank_grid(sizes)
    for rank in range(sizes.world_size):
        found = Coordinates(sizes, rank)
        assert mesh[tuple(found.by_axis.values())] == rank


@given(SIZES, st.integers(0, 20))
def test_of_each_data_rank_every_context_rank_speaks_once_in_each_stage(sizes: Degrees, batches: int) -> None:
    ranks = [Coordinates(sizes, rank) for rank in range(sizes.world_size)]
    for data_rank in range(sizes.data):
        speakers = [each for each in ranks if each.is_loss_reporter and each.data_rank == data_rank]
        assert len(speakers) == sizes.context * sizes.pipeline
    for stage in range(sizes.pipeline):
        speakers = [each for each in ranks if each.is_loss_reporter and each.along("pipeline") == stage]
        assert sorted(index for each in speakers for index in each.evaluation_assignment(batches).own) == list(range(batches))
