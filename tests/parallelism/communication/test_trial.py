"""The choice between ways to sum gradients: by prediction, then by time, and for as long as time and loss hold up."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from paceline.distributed.collectives.options import Algorithm
from paceline.parallelism.communication import words
from paceline.parallelism.communication.choices import ReductionChoice, bucket_sizes, choices
from paceline.parallelism.communication.sum_cost import Links, MeasuredLink
from paceline.parallelism.communication.trial import TIMED, WARM_UP, WINDOW, CommunicationTrial, StepTimes, Verdict

BACKEND, RING, BF16, TOP_K = (
    ReductionChoice(),
    ReductionChoice("ring"),
    ReductionChoice("backend", "bf16"),
    ReductionChoice("hierarchical", "top_k"),
)
SUMS = {BACKEND: 1.0, RING: 0.7, BF16: 0.5, TOP_K: 0.05}
COMPUTING = 0.2


class Job:
    """Steps of a job whose times and losses are given."""

    def __init__(
        self,
        trial: CommunicationTrial,
        seconds: Mapping[ReductionChoice, float],
        loss: Callable[[int, ReductionChoice], float] | None = None,
    ) -> None:
        self.trial, self.seconds, self.step = trial, dict(seconds), 0
        self.loss = loss or (lambda step, choice: 5.0 - 0.001 * step)
        self.told: list[Verdict] = []
        self.used: list[ReductionChoice] = []

    def run(self, steps: int) -> Job:
        for _ in range(steps):
            self.step += 1
            choice = self.trial.current
            self.used.append(choice)
            seconds = self.seconds[choice]
            if self.trial.count(self.step, seconds, seconds - COMPUTING, self.loss(self.step, choice)):
                verdict = self.trial.conclude([self.trial.times(), StepTimes(0.9 * seconds, seconds)])
                self.told += [] if verdict is None else [verdict]
        return self


def job(measured: Mapping[ReductionChoice, float], sums: Mapping[ReductionChoice, float] = SUMS, **options: Any) -> Job:
    trial = CommunicationTrial(sums, links=Links(MeasuredLink(1e-4, 1e9), MeasuredLink(3e-4, 11.8e6)), **options)
    return Job(trial, {choice: COMPUTING + seconds for choice, seconds in measured.items()})


def test_the_default_is_timed_first_and_then_the_best_predictions() -> None:
    found = job(SUMS).run(60)
    round_ = WARM_UP + TIMED
    assert found.used[: 3 * round_] == [*[BACKEND] * round_, *[TOP_K] * round_, *[TOP_K] * round_], (
        "the others are predicted to be far behind"
    )
    (verdict,) = found.told
    assert (verdict.taken, verdict.why, verdict.waited) == (TOP_K, "faster", pytest.approx(1.0))
    assert verdict.predicted[RING] == pytest.approx(0.9)
    assert words.why(verdict) == (
        "as top_k, by a hierarchy: a step takes 250 ms instead of 1.2 s, of which 1 s were waited for sums; what is lossy learns slower per step: a part "
        "of each gradient comes later"
    )
    assert words.links(verdict.links) == "measured: 94.4 Mbit/s and 0.3 ms between machines, 8 Gbit/s and 0.1 ms within a machine"


def test_a_wrong_prediction_costs_some_steps_and_no_more() -> None:
    found = job({BACKEND: 0.1, RING: 0.3, BF16: 0.2, TOP_K: 0.4}).run(100)
    (verdict,) = found.told
    assert (verdict.taken, verdict.why) == (BACKEND, "not_faster")
    assert found.used[-1] == BACKEND
    assert words.why(verdict).endswith(
        "the best of it (in bf16, by the backend) takes 400 ms a step, this 300 ms, and what is rounded must save 5%"
    )


def test_a_process_that_was_slow_at_first_makes_nothing_look_faster() -> None:
    found = job({BACKEND: 1.0, RING: 1.0, BF16: 1.0, TOP_K: 1.0})
    found.seconds = dict.fromkeys(SUMS, 1.6)
    found.run(WARM_UP + TIMED)
    found.seconds = dict.fromkeys(SUMS, 1.2)
    (verdict,) = found.run(100).told
    assert (verdict.taken, verdict.why, verdict.measured[BACKEND]) == (BACKEND, "not_faster", 1.2)
    assert found.used.count(BACKEND) > 2 * (WARM_UP + TIMED)


def test_what_changes_the_training_must_save_more() -> None:
    sums = {BACKEND: 1.0, RING: 0.95, TOP_K: 0.8}
    assert job(sums, sums).run(60).told[0].taken == RING, "a fifth of 1.2 s is more than top_k saves"


def test_nothing_is_tried_where_little_is_waited_for() -> None:
    trial = CommunicationTrial(SUMS)
    found = Job(trial, dict.fromkeys(SUMS, COMPUTING + 0.001)).run(30)
    assert set(found.used) == {BACKEND}
    assert [(each.taken, each.why) for each in found.told] == [(BACKEND, "nothing_to_gain")]
    assert "1 ms of a step of 201 ms" in words.why(found.told[0])


def test_first_steps_are_dense_as_long_as_the_job_says() -> None:
    assert job(SUMS, dense_steps=40).run(60).used[:40] == [BACKEND] * 40


def test_a_choice_that_gets_slow_is_compared_with_the_default_again() -> None:
    found = job(SUMS).run(40)
    found.seconds[TOP_K] = 3.0
    found.run(2 * WINDOW + 4 * (WARM_UP + TIMED))
    assert [(each.taken, each.why) for each in found.told] == [(TOP_K, "faster"), (BACKEND, "no_longer_faster")]
    assert found.used[-1] == BACKEND
    assert words.why(found.told[-1]) == (
        "exactly, by the backend again: a step takes 1.2 s, and 3 s if it is done as top_k, by a hierarchy, and what is lossy must save 20%"
    )


def test_a_choice_stays_where_everything_gets_slow() -> None:
    found = job(SUMS).run(40)
    found.seconds |= {BACKEND: 20.0, TOP_K: 3.0}
    found.run(5 * WINDOW + 4 * (WARM_UP + TIMED))
    assert found.used[-1] == TOP_K
    assert [each.taken for each in found.told] == [TOP_K, TOP_K]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 40.0])
def test_a_loss_that_does_not_hold_up_ends_all_that_leave_something_out(bad: float) -> None:
    found = job(SUMS | {RING: 0.6}).run(40)
    found.loss = lambda step, choice: bad if choice.is_lossy else 5.0
    found.run(5 * WINDOW)
    assert [(each.taken, each.why) for each in found.told] == [(TOP_K, "faster"), (BACKEND, "loss")]
    assert set(found.used[-WINDOW:]) == {BACKEND}
    assert "the loss was higher" in words.why(found.told[-1])


@pytest.mark.parametrize("bad", [math.nan, 40.0])
def test_a_compression_that_the_job_asks_for_is_never_given_up(bad: float) -> None:
    flat = ReductionChoice("backend", "top_k")
    found = job({flat: 1.0, TOP_K: 0.1}, {flat: 1.0, TOP_K: 0.1}).run(40)
    found.loss = lambda step, choice: bad
    found.run(3 * WINDOW)
    assert [(each.taken, each.why) for each in found.told] == [(TOP_K, "faster")]
    assert found.used[-1] == TOP_K


class Learning:
    """A loss that falls less and less, by each choice at its own speed, and scatters."""

    def __init__(self, speeds: Mapping[ReductionChoice, float], scatter: float) -> None:
        self._speeds, self._scatter, self._progress = speeds, scatter, 0.0
        self._draw = random.Random(1)

    def __call__(self, step: int, choice: ReductionChoice) -> float:
        self._progress += self._speeds.get(choice, 1.0)
        return 6.0 / (1.0 + 0.01 * self._progress) + self._draw.gauss(0.0, self._scatter)


def test_a_loss_that_falls_more_slowly_than_by_the_default_ends_all_that_leave_something_out() -> None:
    found = job(SUMS | {RING: 0.6})
    found.loss = Learning({TOP_K: 0.4}, scatter=0.02)
    found.run(300)
    assert [(each.taken, each.why) for each in found.told] == [(TOP_K, "faster"), (BACKEND, "loss")]
    assert set(found.used[-WINDOW:]) == {BACKEND}
    told = words.why(found.told[-1])
    assert re.fullmatch(
        r"exactly, by the backend again: done as top_k, by a hierarchy, the loss falls by \S+ in 100 steps, and by \S+ exactly, by the backend",
        told,
    )


@pytest.mark.parametrize(("speed", "scatter"), [(1.0, 0.02), (0.9, 0.02), (0.4, 0.5)], ids=["as fast", "nearly", "in doubt"])
def test_a_loss_that_falls_as_fast_or_perhaps_as_fast_is_no_reason(speed: float, scatter: float) -> None:
    found = job(SUMS)
    found.loss = Learning({TOP_K: speed}, scatter)
    found.run(300)
    assert [(each.taken, each.why) for each in found.told] == [(TOP_K, "faster")]
    assert found.used.count(BACKEND) == 2 * WARM_UP + TIMED + WINDOW, "the default is compared once"


def test_one_comparison_that_chance_has_decided_gives_up_nothing() -> None:
    """Of jobs that learned as fast by the choice one in forty gave it up, and went on 20 times as slowly on a slow network."""
    given_up = 0
    for seed in range(300):
        draw = random.Random(seed)
        found = job(SUMS)
        found.loss = lambda step, choice, draw=draw: 2.5 + 1.5 / (1 + 0.02 * step) + draw.gauss(0.0, 0.25)  # type: ignore[misc]
        given_up += any(each.why == "loss" for each in found.run(300).told)
    assert given_up <= 1


def test_a_loss_that_only_scatters_is_no_reason() -> None:
    found = job(SUMS)
    found.loss = lambda step, choice: 4.0 + (0.5 if step % 2 else -0.5)
    assert found.run(400).told[-1].taken == TOP_K


@pytest.mark.parametrize("seed", range(40))
def test_a_loss_that_scatters_as_that_of_small_batches_does_gives_up_nothing(seed: int) -> None:
    """Of six steps with a spread of 0.25 one round in ten was higher than the best by chance, and a job on a slow network went on 20 times as slowly."""
    draw = random.Random(seed)
    found = job(SUMS | {RING: 0.6})
    found.loss = lambda step, choice: 2.5 + 1.5 / (1 + 0.02 * step) + draw.gauss(0.0, 0.25)
    found.run(3000)
    assert [each for each in found.told if each.why == "loss" and each.slower is None] == []


def test_a_loss_that_rises_slowly_is_a_reason_too() -> None:
    draw = random.Random(0)
    found = job(SUMS | {RING: 0.6})
    found.loss = lambda step, choice: 3.0 + (0.002 * step if choice.is_lossy else 0.0) + draw.gauss(0.0, 0.25)
    assert found.run(600).used[-1] == BACKEND
    assert found.told[-1].why == "loss"


def move(found: Job, sums: Mapping[ReductionChoice, float], links: Links) -> None:
    """To other machines, where a choice begins with what holds there too."""
    earlier = found.trial
    found.trial = CommunicationTrial(sums, machines=[["a", "a", "b", "b"]], links=links)
    found.trial.inherit(earlier)


def test_a_job_on_other_machines_chooses_anew_by_what_their_links_are() -> None:
    """One that began on one machine summed by the backend for ever, on whatever network it came to, and told the links of the machine it had left."""
    within, between = Links(within=MeasuredLink(1e-4, 1e9)), Links(between=MeasuredLink(3e-4, 11.8e6))
    here = {BACKEND: 0.001, RING: 0.001}
    found = Job(CommunicationTrial(here, links=within), {choice: COMPUTING + seconds for choice, seconds in (SUMS | here).items()}).run(60)
    move(found, SUMS, between)
    found.seconds = {choice: COMPUTING + seconds for choice, seconds in SUMS.items()}
    found.run(60)
    assert [(each.taken, each.why) for each in found.told] == [(BACKEND, "nothing_to_gain"), (TOP_K, "faster")]
    assert found.told[-1].measured[BACKEND] == pytest.approx(1.2), "the time on one machine is that of another world"
    assert words.links(found.told[-1].links) == "measured: 94.4 Mbit/s and 0.3 ms between machines"


def test_a_way_that_other_machines_do_not_have_is_left() -> None:
    found = job(SUMS).run(60)
    move(found, {BACKEND: 1.0, RING: 0.7}, Links())
    assert found.trial.current == BACKEND
    assert [(each.taken, each.why) for each in found.run(60).told] == [(TOP_K, "faster"), (RING, "faster")]
    assert TOP_K not in found.used[60:]


def test_a_trial_that_other_machines_meet_half_way_compares_no_times_of_two_worlds() -> None:
    found = Job(CommunicationTrial(SUMS), dict.fromkeys(SUMS, 1.2)).run(WARM_UP + TIMED + 4)
    assert found.used[-1] != BACKEND
    move(found, SUMS, Links())
    found.seconds = dict.fromkeys(SUMS, 0.3)  # more ranks compute less each, whatever the sums are
    (verdict,) = found.run(100).told
    assert (verdict.taken, verdict.why, verdict.waited) == (BACKEND, "not_faster", pytest.approx(0.1))
    assert set(verdict.measured.values()) == {0.3}


def test_what_was_given_up_for_its_loss_is_not_tried_on_other_machines() -> None:
    found = job(SUMS).run(40)
    found.loss = lambda step, choice: math.nan if choice.is_lossy else 5.0
    found.run(WINDOW)
    assert found.told[-1].why == "loss"
    move(found, SUMS, Links())
    found.run(100)
    assert (found.told[-1].taken, found.told[-1].why) == (BF16, "faster")
    assert not any(choice.is_lossy for choice in found.used[-100:])


def test_a_job_that_goes_back_to_a_checkpoint_has_higher_losses_again() -> None:
    found = job(SUMS).run(200)
    found.trial.join_generation()
    found.loss = lambda step, choice: 40.0 - 0.001 * step
    assert found.run(200).trial.taken == TOP_K


def test_a_generation_that_breaks_off_begins_its_round_again() -> None:
    found = job(SUMS).run(WARM_UP + 3)
    found.trial.join_generation()
    assert found.run(WARM_UP + TIMED - 1).told == []
    assert set(found.used) == {BACKEND}


def test_what_there_is_to_choose() -> None:
    everything = choices("auto", "auto", ("backend", "ring", "hierarchical"))
    assert everything[0] == ReductionChoice()
    assert len(everything) == 9, "a ring sums whole gradients only"
    assert choices("auto", "none", ("backend", "ring")) == (ReductionChoice(), ReductionChoice("ring"))
    assert choices("auto", "top_k", ("backend", "ring", "hierarchical")) == (
        ReductionChoice("backend", "top_k"),
        ReductionChoice("hierarchical", "top_k"),
    )
    offered: tuple[Algorithm, ...] = ("backend",)
    assert choices("backend", "auto", offered, ("none", "bf16")) == (ReductionChoice(), ReductionChoice("backend", "bf16"))


def test_sizes_of_buckets_are_tried_once_with_the_best_way() -> None:
    large, small = replace(TOP_K, bucket_mb=100.0), replace(TOP_K, bucket_mb=5.0)
    trial = CommunicationTrial(SUMS, bucket_sizes=(5.0, 100.0))
    found = Job(
        trial, {choice: COMPUTING + seconds for choice, seconds in SUMS.items()} | {large: COMPUTING + 0.02, small: COMPUTING + 0.06}
    )
    found.run(100)
    (verdict,) = found.told
    assert (verdict.taken, verdict.why) == (large, "faster")
    assert verdict.options[-2:] == (small, large)
    assert words.why(verdict).startswith("as top_k, by a hierarchy, in buckets of 100 MiB: a step takes 220 ms")
    found.seconds[large] = 3.0
    found.run(200)
    assert found.told[-1].why == "no_longer_faster"
    assert found.used.count(small) == WARM_UP + TIMED


def test_sizes_of_buckets_matter_only_where_sums_are_waited_for() -> None:
    trial = CommunicationTrial({BACKEND: 1.0}, bucket_sizes=(5.0, 100.0))
    assert set(Job(trial, {BACKEND: COMPUTING + 0.001}).run(40).used) == {BACKEND}


@pytest.mark.parametrize(("megabytes", "sizes"), [(1.0, ()), (6.0, (0.75,)), (26.0, (3.2, 100.0)), (400.0, (5.0, 100.0))])
def test_the_sizes_of_buckets_to_try_go_with_the_size_of_the_gradients(megabytes: float, sizes: tuple[float, ...]) -> None:
    assert bucket_sizes(megabytes) == sizes


@pytest.mark.parametrize(
    ("default", "share"),
    [(ReductionChoice("backend", "top_k"), "2.5"), (ReductionChoice("hierarchical"), "2"), (BACKEND, "2")],
    ids=["top_k", "hierarchical", "backend"],
)
def test_what_sizes_of_buckets_must_save_is_told_beside_what_the_job_asks_for(default: ReductionChoice, share: str) -> None:
    """It said that what is lossy must save 22% of a job that names top_k, and took what saved a tenth."""
    small = replace(default, bucket_mb=5.0)
    must = float(share) / 100

    def verdict_where_it_saves(part: float) -> Verdict:
        times = {default: COMPUTING + 1.0, small: (COMPUTING + 1.0) * (1 - part)}
        return Job(CommunicationTrial({default: 0.0}, bucket_sizes=(5.0,)), times).run(60).told[0]

    assert verdict_where_it_saves(must + 0.003).taken == small
    less = verdict_where_it_saves(must - 0.003)
    assert less.taken == default
    assert words.why(less).endswith(f"and another way must save {share}%")


def test_a_job_that_comes_to_machines_with_one_way_alone_tells_what_is_done_there() -> None:
    flat = ReductionChoice("backend", "top_k")
    found = Job(CommunicationTrial({flat: 1.0, TOP_K: 0.1}), {flat: 1.2, TOP_K: 0.3})
    assert found.run(60).told[-1].taken == TOP_K
    move(found, {flat: 1.0}, Links())
    assert found.trial.has_choice
    assert words.why(found.run(60).told[-1]) == (
        "as top_k, by the backend: 1 s of a step of 1.2 s are waited for sums, and there is no other way on these machines"
    )


@pytest.mark.parametrize(
    ("asked", "had", "done"),
    [
        (("hierarchical", "none"), {"backend", "ring"}, ("ring", "none")),
        (("hierarchical", "none"), {"backend"}, ("backend", "none")),
        (("hierarchical", "bf16"), {"backend", "ring"}, ("backend", "bf16")),
        (("hierarchical", "bf16"), {"backend", "hierarchical"}, ("hierarchical", "bf16")),
        (("ring", "none"), {"backend"}, ("backend", "none")),
    ],
)
def test_a_way_is_called_by_what_is_done_where_ranks_lack_it(asked: Any, had: set[Algorithm], done: Any) -> None:
    assert ReductionChoice(*asked).done_with(had) == ReductionChoice(*done)


def test_a_job_that_leaves_open_the_size_of_its_buckets_alone_tries_no_other_sum_and_says_so() -> None:
    small = replace(BACKEND, bucket_mb=3.2)
    trial = CommunicationTrial({BACKEND: 0.0}, bucket_sizes=(3.2,))
    found = Job(trial, {BACKEND: COMPUTING + 0.2, small: COMPUTING + 0.05}).run(60)
    (verdict,) = found.told
    assert words.why(verdict).startswith("exactly, by the backend, in buckets of 3.2 MiB: a step takes 250 ms instead of 400 ms")
    assert set(found.used) == {BACKEND, small}
    waits_little = Job(CommunicationTrial({BACKEND: 0.0}, bucket_sizes=(3.2,)), {BACKEND: COMPUTING + 0.001}).run(60)
    assert words.why(waits_little.told[0]).endswith("and other sizes of buckets could save too little of that")
    assert not CommunicationTrial({BACKEND: 0.0}).has_choice
