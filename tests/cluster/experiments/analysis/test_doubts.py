from __future__ import annotations

from dataclasses import replace

from paceline.cluster.experiments.analysis.doubts import doubts, nothing_measured
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.findings import Outlier
from paceline.cluster.states import EndReason
from tests.cluster.experiments.analysis.made_up import RATE, STRATEGY, groups, losses, repeats, scaled

CLEAN = [
    *repeats(0, {"world_size": 1}, scaled(1.0)),
    *repeats(7, {"world_size": 2, STRATEGY: "ddp"}, scaled(0.5)),
    *repeats(14, {"world_size": 4, STRATEGY: "ddp"}, scaled(0.3)),
]


def texts(trials: list[TrialFacts], references: list[int] | None = None, outlying: list[Outlier] | None = None) -> list[str]:
    found = groups(trials)
    known = [each.index for each in found] if references is None else references
    return [each.text for each in doubts(trials, found, known, outlying or [])]


def test_a_clean_experiment_has_none() -> None:
    assert texts(CLEAN) == []


def test_failures_have_their_causes() -> None:
    lost = [
        replace(CLEAN[20], state="failed", end_reason=EndReason.OUT_OF_MEMORY),
        replace(CLEAN[19], state="failed", end_reason=EndReason.HANG),
    ]
    assert texts([*CLEAN[:19], *lost])[0] == "2 of 21 trials failed: 1 out of memory and 1 hang."
    assert texts([*CLEAN[:20], lost[0]]) == ["1 of 21 trials failed: out of memory."]


def test_what_has_not_ended_and_what_was_cancelled() -> None:
    found = texts([*CLEAN[:-2], replace(CLEAN[-2], state="running"), replace(CLEAN[-1], state="cancelled")])
    assert found == ["1 of 21 trials was cancelled.", "1 of 21 trials has not ended: this is of what there is so far."]


def test_what_was_stopped_early() -> None:
    found = texts([*CLEAN[:-1], replace(CLEAN[-1], state="pruned")])
    assert found == ["1 of 21 trials was stopped early: what more steps would have brought is not known."]


def test_refusals_with_one_reason_are_told_together() -> None:
    refused = [
        trial
        for index, ranks in enumerate((3, 5, 8))
        for trial in repeats(
            90 + index, {"world_size": ranks, STRATEGY: "ddp"}, [1.0], state="refused", refusal="too many." if ranks == 8 else "uneven."
        )
    ]
    expected = "3 configurations were refused by the planner and not run: ddp, 3 ranks and ddp, 5 ranks: uneven; ddp, 8 ranks: too many."
    assert texts([*CLEAN, *refused]) == [expected]


def test_a_refusal_has_its_reason() -> None:
    refused = repeats(90, {"world_size": 3, STRATEGY: "ddp"}, [1.0], state="refused", refusal="32 does not divide by 3.")
    assert texts([*CLEAN, *refused]) == ["1 configuration was refused by the planner and not run: ddp, 3 ranks: 32 does not divide by 3."]


def test_few_repeats() -> None:
    assert (
        "3 repeats are no wider than these, and have the true median in them in 75 % of cases only; with 4 or more"
        in texts(repeats(0, {RATE: 1}, [1.0, 1.0, 1.0]))[0]
    )
    assert texts(repeats(0, {RATE: 1}, [1.0])) == ["Each configuration ran once only: how much of its figures is chance is not known."]


def test_a_disturbed_machine() -> None:
    (text,) = texts([*CLEAN[:-1], replace(CLEAN[-1], step_seconds=0.9)])
    assert text.startswith("Repeats of the same configuration differ by up to 3.06 times in the time of a step (ddp, 4 ranks)")


def test_trials_side_by_side() -> None:
    def at(start: float, end: float, index: int) -> TrialFacts:
        return replace(CLEAN[index], started_at=start, ended_at=end)

    apart = [at(float(index), index + 1.0, index) for index in range(21)]
    assert texts(apart) == []
    assert texts([*apart[:-1], at(18.5, 20.0, 20)]) == [
        "Up to 2 trials ran side by side and may have slowed each other; at_once: 1 keeps them apart."
    ]


def test_two_ranks_on_one_machine_say_nothing_of_a_network() -> None:
    one_machine = [replace(each, machines=1) for each in CLEAN[:14]]
    assert texts(one_machine) == [
        "All ranks of a trial shared one machine: this says nothing about a network between machines.",
        "No trial had more than two ranks: how more of them scale is not measured.",
    ]
    assert texts([*one_machine, *(replace(each, machines=2) for each in CLEAN[14:])]) == []


def test_no_single_process() -> None:
    assert texts(CLEAN[7:], []) == [
        "No configuration has a single process to compare with, and so no efficiency; `baseline: true` adds them."
    ]


def test_a_trial_that_takes_over_the_slots_of_one_that_ends_is_not_beside_it() -> None:
    """Two at once: the end of each is noted a moment after the next one has got its slots."""
    two_at_once = [replace(trial, started_at=n // 2 * 100.0, ended_at=n // 2 * 100.0 + 101.0) for n, trial in enumerate(CLEAN)]
    assert texts(two_at_once) == ["Up to 2 trials ran side by side and may have slowed each other; at_once: 1 keeps them apart."]


def test_losses_that_are_not_finite() -> None:
    bad = replace(CLEAN[3], series=losses([1.0, float("nan")]))
    assert texts([*CLEAN[:3], bad, *CLEAN[4:]]) == ["The loss of trial 3 from step 2 on is not finite."]


def test_many_outliers_are_counted() -> None:
    one = Outlier(trial=1, job_id=None, figure="step_seconds", value=2, median=1, text="Trial 1 is slow.")
    assert texts(CLEAN, outlying=[one] * 6) == [*["Trial 1 is slow."] * 4, "2 further outlying figures are in the table."]


def test_nothing_measured_is_said() -> None:
    (only,) = nothing_measured(repeats(0, {}, [1.0], state="waiting"))
    assert only.text == "Nothing is measured yet, so there is nothing to recommend."
    assert nothing_measured(CLEAN) == []


def test_a_loss_that_ends_above_where_it_began_is_told() -> None:
    wild = [replace(trial, series=losses([2.3] * 10 + [3310.0] * 10)) for trial in repeats(0, {RATE: 1e4}, scaled(1.0))]
    tame = [replace(trial, series=losses([2.3] * 10 + [0.5] * 10)) for trial in repeats(7, {RATE: 0.1}, scaled(1.0))]
    assert texts([*wild, *tame]) == ["The loss ended above where it began: lr 10,000 (from 2.3 to 3,310)."]


def test_trials_that_were_paused_do_not_count_as_side_by_side() -> None:
    held = [replace(trial, started_at=0.0, ended_at=100.0, slot_hours=100 / 3600) for trial in repeats(0, {RATE: 1}, scaled(1.0))]
    assert texts(held) == ["Up to 7 trials ran side by side and may have slowed each other; at_once: 1 keeps them apart."]
    assert texts([replace(trial, slot_hours=10 / 3600) for trial in held]) == []


def test_a_trial_whose_data_are_deleted_is_missed() -> None:
    found = texts([*CLEAN[:-1], replace(CLEAN[-1], step_seconds=None, samples_per_second=None)])
    assert found[0].startswith("1 of 21 trials completed and has no figures: their data were deleted, or too few steps were reported.")


def test_derived_values_that_differ_are_told_with_their_configurations() -> None:
    trials = [
        *repeats(0, {"world_size": 1}, scaled(1.0), derived={"reproducible": True, "training.micro_batch_size": 4}),
        *repeats(7, {"world_size": 2, STRATEGY: "fsdp"}, scaled(0.5), derived={"reproducible": False, "training.micro_batch_size": 4}),
    ]
    assert [each for each in texts(trials) if "derived" in each] == [
        "reproducible is not given and was derived as true in single, 1 rank and false in fsdp, 2 ranks: they are compared in this, too; give it to have "
        "it equal."
    ]
