"""Experiments as tables and sentences."""

from __future__ import annotations

from paceline.cli.answers import parsed
from paceline.cli.api_types import Estimate, Experiment, ExperimentAnalysis, Trial, TrialCounts
from paceline.cli.render import formats
from paceline.cli.render.experiment_tables import configurations_table, counts_text, details, interval, report, trials_table, values_text
from tests.cli.fake_coordinator import analysis, experiment


def test_counts_are_told_without_what_is_none() -> None:
    counts = TrialCounts(total=9, completed=3, refused=2, running=1)
    assert counts_text(counts) == "3 of 9 completed, 2 refused, 1 running"


def test_values_go_by_the_last_word_unless_two_share_it() -> None:
    assert values_text({"optimizer.lr": 1e-4, "world_size": 2}) == "lr=0.0001, world_size=2"
    assert values_text({"a.size": 1, "b.size": 2}) == "a.size=1, b.size=2"
    assert values_text({"parallelism.pipeline": None, "world_size": 1}) == "world_size=1"


def test_repeats_are_counted_from_one_as_everywhere_else() -> None:
    trials = [Trial(index=7 + repeat, state="waiting", repeat=repeat, values={"optimizer.lr": 0.1}) for repeat in (0, 1)]
    headers, *rows = trials_table(trials).splitlines()
    assert headers.split()[:3] == ["TRIAL", "VALUES", "REPEAT"]
    assert [row.split()[:3] for row in rows] == [["7", "lr=0.1", "1"], ["8", "lr=0.1", "2"]]


def test_an_interval_stands_behind_its_median() -> None:
    assert interval(Estimate(value=152.0, low=148.0, high=156.0, count=3), formats.quantity) == "152 [148, 156]"
    assert interval(Estimate(value=152.0, count=1), formats.quantity) == "152"
    assert interval(None, formats.quantity) == formats.UNKNOWN


def test_configurations_have_the_columns_of_which_something_is_known() -> None:
    headers, measured, refused = configurations_table(parsed(analysis(), ExperimentAnalysis).analysis, "loss").splitlines()
    assert headers.split("  ")[0] == "CONFIGURATION"
    assert [name in headers for name in ("SAMPLES/S", "EFFICIENCY", "PEAK MEMORY", "LOSS")] == [True, True, False, False]
    assert measured.split() == ["*", "ddp,", "2", "ranks", "3/3", "152", "[148,", "156]", "93%"]
    assert refused.endswith("no way")


def test_a_pruned_configuration_shows_what_it_had_reached_and_when() -> None:
    whole = analysis()
    for each, value in zip(whole["analysis"]["configurations"], (2.31, None), strict=True):
        each["pruned"] = {"step": 9, "metric": value and {"value": value, "low": None, "high": None, "count": 1}}
    headers, finite, diverged = configurations_table(parsed(whole, ExperimentAnalysis).analysis, "eval_loss").splitlines()
    assert "EVAL_LOSS" in headers
    assert "2.31 at step 9, pruned" in finite
    assert "not finite at step 9, pruned" in diverged


def test_the_advice_comes_first_and_the_doubt_last() -> None:
    lines = report(parsed(analysis(), ExperimentAnalysis).analysis, "loss").splitlines()
    assert lines[:2] == ["recommendation: Take ddp.", "doubt: Two ranks say nothing of a network."]


def test_the_head_says_why_nothing_runs_and_leaves_out_what_is_unknown() -> None:
    waiting = parsed(experiment(seconds_left=None, waits_for={"code": "no_slots", "text": "all slots are taken"}), Experiment)
    text = details(waiting)
    assert "waits for   all slots are taken" in text
    assert "left" not in text
