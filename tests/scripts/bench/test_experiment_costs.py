"""What the benchmark of the cost model makes of what it found, and that every kind of plan is really trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.parallelism.planning.cost.fit import ToldStep
from paceline.parallelism.planning.cost.published import published
from scripts.bench import experiment_costs
from scripts.bench.costs import trials
from scripts.bench.costs.trials import BATCHES, MODELS, PLANS, MeasuredTrial, measure, measured, read, trial
from scripts.bench.experiment_costs import cost_model_error, plan_of, published_tables_error
from scripts.scaling_tables.predictions import compare_all

pytestmark = pytest.mark.timeout(120)


def test_every_kind_of_plan_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trials.MODELS, "tiny", {"layers": 2, "dim": 32, "heads": 2, "context": 16})  # type: ignore[arg-type]
    found = measure([trial("tiny", 8, plan) for plan in PLANS], rounds=1)
    assert [each.trial.name for each in found] == [f"tiny, batch 8, {plan}" for plan in PLANS]
    assert all(each.seconds > 0 for each in found)
    sizes = [plan_of(each).setup.degrees.sizes for each in found]
    assert [size for index, size in enumerate(sizes) if size not in sizes[:index]] == [
        {},
        {"replicate": 2},
        {"shard": 2},
        {"tensor": 2},
        {"pipeline": 2},
    ]


def test_the_faster_half_of_the_rounds_counts() -> None:
    found = measured(trial("usual", 8, "ddp"), [5.0, 1.0, 9.0, 1.2, 1.1])
    assert (found.seconds, found.spread) == (1.1, pytest.approx(1.2))


def test_kept_steps_are_read_as_they_were_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [MeasuredTrial(trial(model, 8, plan), 0.1 + 0.01 * number, 1.1) for model in MODELS for number, plan in enumerate(PLANS)]
    monkeypatch.setattr(experiment_costs, "measure", lambda *_: found)
    (first,) = experiment_costs.measured_here(1, ("usual",), (8,), tmp_path / "steps.json")
    assert read(tmp_path / "steps.json") == found
    monkeypatch.setattr(experiment_costs, "measure", lambda *_: pytest.fail("measured again"))
    (again,) = experiment_costs.measured_here(1, ("usual",), (8,), tmp_path / "steps.json")
    assert again == first


def test_the_figure_is_of_plans_and_names_the_worst() -> None:
    found = [MeasuredTrial(trial("usual", 8, plan), 0.1, 1.1) for plan in ("single", "ddp")]
    draws = [
        [ToldStep(plan_of(each), seconds) for each, seconds in zip(found, told, strict=True)]
        for told in ((0.11, 0.08), (0.11, 0.07), (0.09, 0.08))
    ]
    figure = cost_model_error(found, draws)
    assert (figure.figure, figure.n, figure.p95) == ("cost_model_error", 2, pytest.approx(0.2))
    assert "worst here 0.200: usual, batch 8, ddp (100 ms)" in figure.reference


def test_trials_differ() -> None:
    names = [each.name for each in trials.trials()]
    assert len(set(names)) == len(names) == len(MODELS) * len(BATCHES) * len(PLANS)


def test_the_figure_of_published_tables_names_and_explains_the_worst() -> None:
    figure = published_tables_error(compare_all(published()))
    assert figure.n == 54
    assert "AMP, 256: convolutions in fp16 on a V100" in figure.reference
