"""How far the trials of a configuration came that a halving pruned. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.cluster.experiments.analysis.statistics import estimate, usable
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.findings import Pruned


def pruned(trials: Sequence[TrialFacts]) -> Pruned | None:
    """Return what the pruned trials that came furthest had reached; None: none was pruned at a rung."""
    last = [trial.rungs[-1] for trial in trials if trial.state == "pruned" and trial.rungs]
    if not last:
        return None
    step = max(rung.steps for rung in last)
    values = sorted(value for rung in last if rung.steps == step and (value := usable(rung.value)) is not None)
    return Pruned(step=step, metric=estimate(values))
