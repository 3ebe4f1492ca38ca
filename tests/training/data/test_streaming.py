"""Streams: every sample once in each pass, wherever one begins, in whatever order threads ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.training.data.feed import open_feed
from paceline.training.data.sampler import BatchSplit, total_steps
from paceline.training.data.streaming import StreamFeed
from paceline.training.errors import InvalidInputError
from paceline.training.schema.training import TrainingLength
from paceline.training.spec.job import JobSpec
from paceline.training.task import Batch


@dataclass
class Shards:
    """Sample n of shard s is s * 1000 + n."""

    lengths: Sequence[int]
    declared: bool = False
    reads: list[tuple[int, int]] = field(default_factory=list)
    given: int = 0

    @property
    def shards(self) -> int:
        return len(self.lengths)

    def samples(self, shard: int) -> int | None:
        return self.lengths[shard] if self.declared else None

    def read(self, shard: int, start: int) -> Iterator[int]:
        self.reads.append((shard, start))
        for number in range(start, self.lengths[shard]):
            self.given += 1
            yield shard * 1000 + number

    def batch(self, samples: Sequence[int], generator: torch.Generator) -> Batch:
        return torch.tensor(samples), torch.rand(len(samples), generator=generator)


def feed_of(stream: Shards, total: int = 8, micro: int = 3, seed: int = 0, threads: int = 0) -> StreamFeed:
    return StreamFeed(stream, seed, BatchSplit(total, micro), threads)


def used(feed: StreamFeed, index: int, steps: range) -> list[int]:
    return [int(sample) for step in steps for sample in feed.micro_batch(step, index)[0]]


@given(st.lists(st.integers(1, 20), min_size=3, max_size=9), st.booleans(), st.integers(0, 99))
@settings(deadline=None)
def test_all_lanes_together_pass_over_every_sample_exactly_once(lengths: list[int], declared: bool, seed: int) -> None:
    stream = Shards(lengths, declared)
    feed = feed_of(stream, seed=seed)
    passes = []
    for index, size in enumerate((3, 3, 2)):
        line = used(feed, index, range(1, 2 * 60 // size + 2))
        own = sum(lengths[shard] for shard in {sample // 1000 for sample in line})
        passes += line[:own]
        assert Counter(line[own : 2 * own]) == Counter(line[:own])  # the next pass, in another order of shards
    assert Counter(passes) == Counter(shard * 1000 + number for shard, length in enumerate(lengths) for number in range(length))


@given(st.lists(st.integers(1, 12), min_size=3, max_size=6), st.booleans(), st.lists(st.integers(1, 40), min_size=1, max_size=12))
@settings(deadline=None)
def test_a_step_has_the_same_samples_whatever_was_asked_before(lengths: list[int], declared: bool, asked: list[int]) -> None:
    straight, jumping = feed_of(Shards(lengths, declared)), feed_of(Shards(lengths, declared))
    line = [straight.micro_batch(step, 1) for step in range(1, 41)]
    for step in asked:
        for mine, theirs in zip(jumping.micro_batch(step, 1), line[step - 1], strict=True):
            assert torch.equal(mine, theirs)


def test_what_is_known_to_lie_before_is_not_read() -> None:
    stream = Shards([1000] * 3, declared=True)
    feed = feed_of(stream, total=9)
    feed.micro_batch(1_000_001, 0)
    assert stream.given == 3
    assert [start for _, start in stream.reads] == [0]  # 3,000,000 samples are whole passes


def test_going_back_a_little_begins_in_the_middle_of_a_shard() -> None:
    """What was computed ahead is thrown away when the ranks change; the reader must not begin anew for it."""
    stream = Shards([1000] * 3)
    feed = feed_of(stream)
    line = used(feed, 0, range(1, 101))
    before = stream.given
    assert used(feed, 0, range(95, 98)) == line[94 * 3 : 97 * 3]
    assert stream.given - before == 9


def test_threads_get_what_one_would() -> None:
    stream = Shards([5000] * 3)
    feed = feed_of(stream, threads=4)
    with ThreadPoolExecutor(4) as pool:
        batches = list(pool.map(lambda step: feed.micro_batch(step, 0)[0].tolist(), range(1, 200)))
    assert [sample for batch in batches for sample in batch] == used(feed_of(Shards([5000] * 3)), 0, range(1, 200))


def test_one_that_is_a_step_ahead_waits_for_no_one_and_loses_nothing() -> None:
    stream = Shards([1000] * 3)
    feed = feed_of(stream, threads=2)
    straight = used(feed_of(Shards([1000] * 3)), 0, range(1, 4))
    assert used(feed, 0, range(2, 3)) + used(feed, 0, range(1, 2)) + used(feed, 0, range(3, 4)) == [
        *straight[3:6],
        *straight[:3],
        *straight[6:],
    ]
    assert stream.given == 9


def test_seeds_and_passes_have_orders_of_their_own() -> None:
    firsts = {tuple(used(feed_of(Shards([3] * 30), seed=seed), 0, range(1, 11))) for seed in range(5)}
    assert len(firsts) == 5
    line = used(feed_of(Shards([3] * 30)), 0, range(1, 21))
    assert sorted(line[:30]) == sorted(line[30:])
    assert line[:30] != line[30:]


def test_augmentation_depends_on_the_place_alone() -> None:
    one, other = feed_of(Shards([9] * 3)), feed_of(Shards([9] * 3))
    other.micro_batch(7, 2)
    assert torch.equal(one.micro_batch(2, 1)[1], other.micro_batch(2, 1)[1])
    assert not torch.equal(one.micro_batch(2, 1)[1], one.micro_batch(3, 1)[1])


def test_fewer_shards_than_micro_batches_are_refused_with_a_way_out() -> None:
    with pytest.raises(InvalidInputError, match=r"has 2 shards, fewer than the 3 micro-batches .*micro_batch_size=4 or more"):
        feed_of(Shards([5, 5]))
    assert used(feed_of(Shards([5, 5]), micro=4), 0, range(1, 2))


@pytest.mark.parametrize(
    ("now", "said"), [(7, "gave 7 samples where there were 10"), (13, "gave more than 10 samples where there were 10")]
)
def test_a_source_that_changes_is_refused_with_the_reason(now: int, said: str) -> None:
    stream = Shards([10, 10, 10])
    feed = feed_of(stream, total=9)
    used(feed, 0, range(1, 9))
    stream.lengths = [now] * 3
    with pytest.raises(InvalidInputError, match=rf"{said}.*no sample can be used exactly once"):
        used(feed, 0, range(9, 20))


def test_a_declared_length_must_hold() -> None:
    stream = Shards([10] * 3, declared=True)
    feed = feed_of(stream, total=9)
    stream.lengths = [8] * 3
    with pytest.raises(InvalidInputError, match="gave 8 samples where there were 10"):
        used(feed, 0, range(1, 9))


def test_shards_without_a_sample_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="hold no sample"):
        feed_of(Shards([0, 0, 0])).micro_batch(1, 0)
    some = feed_of(Shards([0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4]))
    assert len(used(some, 0, range(1, 9))) == 24


class Failing(Shards):
    """Fails once, in the middle of a shard."""

    failed = False

    def read(self, shard: int, start: int) -> Iterator[int]:
        for number, sample in enumerate(super().read(shard, start), start):
            if number == 4 and not self.failed:
                self.failed = True
                raise OSError("the network is away")
            yield sample


def test_a_read_that_failed_may_be_tried_again() -> None:
    feed = feed_of(Failing([50] * 3))
    used(feed, 0, range(1, 2))
    with pytest.raises(OSError, match="the network is away"):
        feed.micro_batch(2, 0)
    assert used(feed, 0, range(1, 9)) == used(feed_of(Shards([50] * 3)), 0, range(1, 9))


def test_epochs_of_a_stream_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"training.epochs=2 needs data of known length.*give training.steps"):
        total_steps(TrainingLength(epochs=2), None)


def test_a_spec_decides_the_portions_and_the_seed() -> None:
    training = {"steps": 3, "global_batch_size": 8, "micro_batch_size": 3, "seed": 5, "data_workers": 2}
    spec = JobSpec.model_validate({"name": "x", "entrypoint": "a:b", "training": training})
    feed = open_feed(Shards([9] * 3), spec)
    assert feed.epoch_samples is None
    assert torch.equal(feed.micro_batch(2, 1)[0], feed_of(Shards([9] * 3), seed=5).micro_batch(2, 1)[0])
