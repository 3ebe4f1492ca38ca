"""Each sample exactly once, or the places and steps where it was not."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paceline.cluster.history.samples import MOST_EPOCHS, EpochTally, SampleSpan, SampleUse, audit, by_epoch, extend, sweep


def ranges_of(uses: list[SampleUse]) -> list[SampleSpan]:
    ranges: list[SampleSpan] = []
    for use in uses:
        extend(ranges, use)
    return ranges


def run(steps: range, batch: int = 8, generation: int = 1) -> list[SampleUse]:
    return [SampleUse(generation, step, (step - 1) * batch, batch) for step in steps]


def test_a_run_in_three_generations_is_three_ranges() -> None:
    ranges = ranges_of(run(range(1, 41)) + run(range(41, 61), generation=2) + run(range(61, 101), generation=3))
    assert ranges == [SampleSpan(1, 1, 40, 0, 320), SampleSpan(2, 41, 60, 320, 160), SampleSpan(3, 61, 100, 480, 320)]
    found = audit(ranges, begins_at=0, epoch_samples=300)
    assert found.exactly_once
    assert (found.steps, found.samples, found.duplicates, found.missing) == (100, 800, 0, 0)
    assert [(each.epoch, each.used) for each in found.epochs] == [(0, 300), (1, 300), (2, 200)]


def test_a_step_that_used_anothers_samples_is_found_on_both_sides() -> None:
    uses = run(range(1, 11))
    uses[4] = SampleUse(1, 5, 24, 8)  # those of step 4
    found = audit(ranges_of(uses), begins_at=0, epoch_samples=20)
    assert (found.duplicates, found.missing) == (8, 8)
    assert found.findings == (
        "step 5 begins at place 24, not at 32 where step 4 ended",
        "step 6 begins at place 40, not at 32 where step 5 ended",
        "places 32 to 39 were never used",
        "places 24 to 31 were used more than once",
    )
    assert [(each.epoch, each.used, each.duplicates) for each in found.epochs] == [(0, 20, 0), (1, 12, 8), (2, 20, 0), (3, 20, 0)]


def test_a_step_that_no_rank_reported() -> None:
    uses = run(range(1, 11))
    del uses[4]
    found = audit(ranges_of(uses), begins_at=0, epoch_samples=None)
    assert found.findings == ("step 5: no rank reported which samples it used", "places 32 to 39 were never used")
    assert (found.missing, found.epochs) == (8, ())


def test_the_first_step_must_begin_at_the_lines_begin_unless_the_job_was_restored() -> None:
    late = ranges_of(run(range(3, 6)))
    assert audit(late, begins_at=0, epoch_samples=None).findings == ("places 0 to 15 were never used",)
    assert audit(late, begins_at=None, epoch_samples=None).exactly_once


def test_many_findings_are_told_in_part() -> None:
    found = audit(ranges_of([use for use in run(range(1, 101)) if use.step % 2]), begins_at=0, epoch_samples=None)
    assert len(found.findings) == 42
    assert found.findings[20] == "and 29 more of this kind"


@given(rng=st.randoms(use_true_random=False))
def test_the_totals_are_those_of_counting_one_by_one(rng: random.Random) -> None:
    uses = [SampleUse(1, step, rng.randint(0, 60), rng.randint(1, 9)) for step in range(1, rng.randint(2, 15))]
    places: dict[int, int] = {}
    for use in uses:
        for place in range(use.first, use.first + use.count):
            places[place] = places.get(place, 0) + 1
    found = audit(ranges_of(uses), begins_at=0, epoch_samples=17)
    assert found.samples == sum(places.values())
    assert found.missing == max(places) + 1 - len(places)
    assert found.duplicates == sum(count - 1 for count in places.values())
    assert sum(each.used for each in found.epochs) == len(places)
    assert found.exactly_once == (found.missing == found.duplicates == 0 and all(a.first + a.count == b.first for a, b in pairwise(uses)))


spans = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), max_size=6)


@given(spans=spans, size=st.integers(1, 7))
def test_epochs_equal_counting_every_place(spans: list[tuple[int, int]], size: int) -> None:
    used = sorted((first, first + count) for first, count in spans)
    _, doubled = sweep(used, 0)
    places = Counter(place for first, end in used for place in range(first, end))
    expected: dict[int, list[int]] = {}
    for place, times in places.items():
        epoch = expected.setdefault(place // size, [0, 0])
        epoch[0], epoch[1] = epoch[0] + 1, epoch[1] + times - 1
    assert [(each.epoch, [each.used, each.duplicates]) for each in by_epoch(used, doubled, size)] == sorted(expected.items())


def test_a_step_that_says_it_used_a_quadrillion_samples_costs_no_time() -> None:
    result = audit([SampleSpan(1, 1, 1, 0, 10**15)] * 100, begins_at=0, epoch_samples=1)
    assert len(result.epochs) == MOST_EPOCHS
    assert result.epochs[-1] == EpochTally(10**15 - 1, 1, 99)
