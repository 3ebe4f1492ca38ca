from __future__ import annotations

from collections import Counter

import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline.parallelism.plan import partition
from paceline.training.data.sampler import BatchSplit, Sampler, derive_seed, epoch_order, evaluation_indices, total_steps
from paceline.training.schema.training import TrainingLength


@st.composite
def samplers(draw: st.DrawFn) -> Sampler:
    total = draw(st.integers(1, 20))
    micro = draw(st.integers(1, total))  # the last micro-batch may be smaller
    return Sampler(draw(st.integers(1, 60)), draw(st.integers(0, 2**32 - 1)), BatchSplit(total, micro))


def drawn(sampler: Sampler, steps: int) -> list[int]:
    return [
        int(i) for step in range(1, steps + 1) for index in range(sampler.portions.micro_batches) for i in sampler.micro_batch(step, index)
    ]


@given(samplers(), st.integers(1, 3))
def test_every_epoch_uses_every_sample_exactly_once(sampler: Sampler, epochs: int) -> None:
    steps = -(-epochs * sampler.samples // sampler.portions.global_batch_size)
    line = drawn(sampler, steps)
    for epoch in range(epochs):
        assert sorted(line[epoch * sampler.samples : (epoch + 1) * sampler.samples]) == list(range(sampler.samples))


@given(samplers(), st.integers(1, 30))
def test_a_micro_batch_is_a_pure_function_of_its_step(sampler: Sampler, step: int) -> None:
    epoch_order.cache_clear()
    fresh = sampler.micro_batch(step, 0)
    drawn(sampler, step)  # whatever came before
    assert torch.equal(fresh, sampler.micro_batch(step, 0))


@given(samplers(), st.integers(1, 5), st.integers(1, 20))
def test_ranks_together_draw_what_one_would(sampler: Sampler, world_size: int, step: int) -> None:
    count = sampler.portions.micro_batches
    shares = [partition(count, rank, world_size) for rank in range(world_size)]
    together = [sampler.micro_batch(step, index) for part in shares for index in part]
    assert torch.equal(torch.cat(together), torch.cat([sampler.micro_batch(step, index) for index in range(count)]))


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [tuple(epoch_order(seed, epoch, 50).tolist()) for seed in range(3) for epoch in range(3)]
    assert len(set(orders)) == len(orders)


@given(st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 1000), st.integers(0, 50)), unique=True, min_size=2, max_size=50))
def test_derived_seeds_differ_and_fit_the_generators(parts: list[tuple[int, int, int]]) -> None:
    seeds = [derive_seed(*part) for part in parts]
    assert max(Counter(seeds).values()) == 1
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_steps_of_epochs_round_up() -> None:
    assert total_steps(TrainingLength(epochs=2, global_batch_size=32), samples=100) == 7
    assert total_steps(TrainingLength(steps=5), samples=100) == 5


@given(st.integers(1, 500), st.one_of(st.none(), st.integers(1, 600)))
def test_evaluation_takes_distinct_samples_spread_over_the_set(samples: int, limit: int | None) -> None:
    indices = evaluation_indices(samples, limit).tolist()
    assert len(set(indices)) == len(indices) == min(samples, limit or samples)
    assert all(0 <= index < samples for index in indices)
