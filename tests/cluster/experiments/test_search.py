"""What a search draws: the same again for the same history, nothing twice, and with TPE more where it went well."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from typing import Any

import pytest

from paceline.cluster.experiments.search import MissingOptunaError, PastTrial, propose
from paceline.cluster.experiments.spec import Metric, Search, Span

LOSS, ACCURACY = Metric(), Metric(name="eval_accuracy", goal="maximize")
LR = {"optimizer.lr": Span(low=1e-4, high=1.0, scale="log")}


def search(kind: Any = "tpe", seed: int = 0, trials: int = 50, **parameters: Any) -> Search:
    return Search(kind=kind, trials=trials, seed=seed, parameters=parameters.get("parameters", LR))


def distance(lr: float) -> float:
    """A loss whose best learning rate is 0.01."""
    return abs(math.log10(lr) + 2)


def run(given: Search, count: int, metric: Metric = LOSS) -> list[PastTrial]:
    history = list[PastTrial]()
    for _ in range(count):
        values = propose(given, metric, history)
        assert values is not None
        loss = distance(values["optimizer.lr"])
        history.append(PastTrial(values, "completed", -loss if metric.goal == "maximize" else loss))
    return history


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_the_same_history_gives_the_same_values(kind: Any) -> None:
    history = run(search(kind), 14)
    for drawn in range(14):
        assert propose(search(kind), LOSS, history[:drawn]) == history[drawn].values, "as after the death of a coordinator"
    assert run(search(kind, seed=1), 1) != history[:1]
    assert len({past.values["optimizer.lr"] for past in history}) == 14


def test_random_values_do_not_depend_on_how_trials_went() -> None:
    history = run(search("random"), 5)
    failed = [PastTrial(past.values, "failed") for past in history]
    assert propose(search("random"), LOSS, failed) == propose(search("random"), LOSS, history)


@pytest.mark.parametrize("metric", [LOSS, ACCURACY])
def test_tpe_draws_where_it_went_well(metric: Metric) -> None:
    history = [distance(past.values["optimizer.lr"]) for past in run(search(), 40, metric)]
    assert statistics.median(history[20:]) < 0.5 * statistics.median(history[:10])
    assert min(history) < 0.1


def test_tpe_keeps_away_from_what_diverges_and_learns_from_what_was_stopped_early() -> None:
    """Whatever is above 0.01 diverges or fails; the others were stopped at step 9. A half of all that could be drawn is above 0.01."""
    history = list[PastTrial]()
    for number in range(40):
        values = propose(search(), LOSS, history)
        assert values is not None
        lr = values["optimizer.lr"]
        bad: Any = ("failed", "completed", "stopped_early")[number % 3]
        history.append(PastTrial(values, bad) if lr > 0.01 else PastTrial(values, "stopped_early", distance(lr), step=9))
    later = [past.values["optimizer.lr"] for past in history[20:]]
    assert sum(lr > 0.01 for lr in later) <= 11, "17 where what diverges counts as a completed trial"
    assert statistics.median(map(distance, later)) < 0.6


def test_trials_that_run_or_were_taken_out_are_no_obstacle() -> None:
    history = run(search(), 12)
    history += [PastTrial({"optimizer.lr": 0.5}, "running"), PastTrial({"optimizer.lr": 0.6}, "left_out")]
    history += [PastTrial({"optimizer.lr": 7.0}, "completed", 0.0), PastTrial({}, "failed")]
    assert propose(search(), LOSS, history) is not None, "the last two are of another space"


@pytest.mark.parametrize("kind", ["random", "tpe"])
def test_nothing_is_drawn_twice_and_a_small_space_comes_to_an_end(kind: Any) -> None:
    parameters = {"optimizer.lr": [0.1, 0.01, 0.001], "training.seed": Span(low=1, high=4, whole=True), "model.hidden": [[64], [8, 8]]}
    small, history = search(kind, parameters=parameters), list[PastTrial]()
    while (values := propose(small, LOSS, history)) is not None:
        history.append(PastTrial(values, "completed", float(len(history))))
    assert len(history) == 3 * 4 * 2
    assert len({str(past.values) for past in history}) == 24
    assert all(type(past.values["training.seed"]) is int and past.values["model.hidden"] in ([64], [8, 8]) for past in history)


def test_without_optuna_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingOptunaError, match=r"pip install 'paceline\[experiments\]' and start it again, or give a grid"):
        propose(search(), LOSS, [])


def test_optuna_is_imported_by_the_first_draw_and_brings_no_torch() -> None:
    code = (
        "import sys\n"
        "from paceline.cluster.experiments.search import propose\n"
        "from paceline.cluster.experiments.spec import Metric, Search\n"
        "assert 'optuna' not in sys.modules\n"
        "propose(Search(trials=1, parameters={'a': [1, 2]}), Metric(), [])\n"
        "assert 'optuna' in sys.modules and not {'torch', 'scipy', 'sklearn'} & sys.modules.keys()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
