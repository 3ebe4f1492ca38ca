"""The analysis of an experiment from the facts of its trials, at any time, on what there is. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.cluster.experiments.analysis import model_sizes, tradeoffs
from paceline.cluster.experiments.analysis import recommendation as advice
from paceline.cluster.experiments.analysis.comparisons import pairs
from paceline.cluster.experiments.analysis.configurations import RepeatedTrials, axes, group
from paceline.cluster.experiments.analysis.convergence import convergence
from paceline.cluster.experiments.analysis.differences import differences, effects
from paceline.cluster.experiments.analysis.doubts import doubts, nothing_measured
from paceline.cluster.experiments.analysis.figures import FIGURES, compared_figures
from paceline.cluster.experiments.analysis.fits import fit_all
from paceline.cluster.experiments.analysis.interpretation import (
    convergence_sentences,
    cost_sentences,
    fit_sentences,
    scaling_sentences,
    told_series,
)
from paceline.cluster.experiments.analysis.loss_series import loss_series
from paceline.cluster.experiments.analysis.outliers import outliers
from paceline.cluster.experiments.analysis.pareto import pareto_front
from paceline.cluster.experiments.analysis.predictions import consult, median_parts
from paceline.cluster.experiments.analysis.predictor import Predictor
from paceline.cluster.experiments.analysis.pruned import pruned
from paceline.cluster.experiments.analysis.scaling import rank_series, references, speedup
from paceline.cluster.experiments.analysis.statistics import estimate, usable
from paceline.cluster.experiments.analysis.totals import energy_of, slot_hours_of
from paceline.cluster.experiments.best_trial import ComparedTrial, best_trial
from paceline.cluster.experiments.facts import TrialFacts
from paceline.cluster.experiments.findings import Analysis, Configuration
from paceline.cluster.experiments.schedule import ENDED
from paceline.cluster.experiments.spec import ExperimentSpec


def analyze(spec: ExperimentSpec, trials: Sequence[TrialFacts], predictor: Predictor | None = None) -> Analysis:
    """Return what the trials say, and what they do not. The order of the trials does not matter; without a predictor there are no predictions."""
    varied, groups = axes(spec, trials), group(spec, trials)
    singles = references(groups)
    series = rank_series(groups, singles)
    compared, figures = pairs(spec, varied, groups), compared_figures(spec)
    laws, costs = fit_all(spec.scaling, series), consult(predictor, groups, series)
    found_outliers, found_effects, losses = outliers(groups), effects(figures, compared), convergence(groups, singles)
    taken = advice.recommend(spec, varied, groups)
    front = pareto_front(groups, spec.metric.goal)
    configurations = [_configuration(spec, each, singles.get(each.index), each.index in front, costs.step_seconds) for each in groups]
    sentences = [
        *nothing_measured(trials),
        *(advice.sentences(spec, taken) if taken else []),
        *tradeoffs.sentences(found_effects, groups),
        *scaling_sentences(told_series(series), configurations),
        *fit_sentences(told_series(series), laws.found, laws.refused),
        *convergence_sentences(losses),
        *model_sizes.sentences(predictor, compared),
        *cost_sentences(costs, told_series(series), configurations),
        *doubts(trials, groups, list(singles), found_outliers),
    ]
    return Analysis(
        trials=len(trials),
        completed=_count(trials, "completed"),
        failed=_count(trials, "failed"),
        ended=sum(trial.state in ENDED - {"refused"} for trial in trials),
        refused=_count(trials, "refused"),
        axes=varied,
        configurations=configurations,
        best=taken.best.index if taken else None,
        best_trial=best_trial(
            spec.metric, [ComparedTrial(each.index, each.state, usable(each.metric), each.rungs) for each in trials]
        ).trial,
        slot_hours=slot_hours_of(trials),
        energy_joules=energy_of(trials),
        differences=differences(figures, compared),
        effects=found_effects,
        outliers=found_outliers,
        fits=list(laws.found),
        convergence=losses,
        cost_checks=list(costs.checks),
        predictions=list(costs.predictions),
        sentences=sentences,
        series=loss_series(groups, [taken.best.index] if taken else []),
    )


def _count(trials: Sequence[TrialFacts], state: str) -> int:
    return sum(trial.state == state for trial in trials)


def _configuration(
    spec: ExperimentSpec, found: RepeatedTrials, single: RepeatedTrials | None, pareto: bool, predicted: Mapping[int, float]
) -> Configuration:
    return Configuration(
        index=found.index,
        label=found.label,
        values=dict(found.values),
        world_size=found.world_size,
        strategy=found.strategy,
        baseline=found.baseline,
        trials=[trial.index for trial in found.trials],
        completed=found.completed,
        refusal=found.refusal,
        **{name: estimate(found.figures[name]) for name in FIGURES},
        speedup=speedup(found, single, spec.scaling),
        efficiency=speedup(found, single, spec.scaling, per_rank=True),
        pruned=pruned(found.trials),
        parts=median_parts(found),
        pareto=pareto,
        predicted_step_seconds=predicted.get(found.index),
    )
