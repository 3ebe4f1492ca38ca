from __future__ import annotations

from paceline.cluster.experiments.analysis.analyze import analyze
from paceline.cluster.experiments.facts import Rung
from paceline.cluster.experiments.findings import Estimate, Pruned
from tests.cluster.experiments.analysis.made_up import RATE, repeats, spec


def pruned_of(*rungs: tuple[Rung, ...], state: str = "pruned") -> Pruned | None:
    (found,) = analyze(spec(), repeats(0, {RATE: 1}, [1.0] * len(rungs), state=state, rungs=list(rungs))).configurations
    assert found.metric is None
    return found.pruned


def test_what_a_pruned_trial_had_reached_is_told_with_its_step() -> None:
    assert pruned_of((Rung(9, 3.0), Rung(18, 2.0))) == Pruned(step=18, metric=Estimate(value=2.0, count=1))


def test_of_repeats_those_that_came_furthest_count() -> None:
    found = pruned_of((Rung(9, 1.0),), (Rung(9, 3.0), Rung(18, 2.0)), (Rung(9, 3.0), Rung(18, 2.5)))
    assert found is not None
    assert found.metric is not None
    assert (found.step, found.metric.value, found.metric.count) == (18, 2.25, 2)


def test_what_diverged_was_pruned_without_a_metric() -> None:
    assert pruned_of((Rung(9, None),)) == Pruned(step=9, metric=None)


def test_a_trial_that_is_still_on_its_way_was_not_pruned() -> None:
    assert pruned_of((Rung(9, 1.0),), state="paused") is None
