"""From which size of model on a plan that saves memory is needed, from the measured peaks and what a rank keeps of a parameter. Pure.

A larger model of the same job is taken to need what was measured, and for each further parameter the state that its plan keeps on a rank. Activations
grow as well, by the model's shape and not by its parameters alone: what fits by this reckoning may not, what does not fit never does. So a limit is told as
"at the latest".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.cluster.experiments.analysis.comparisons import ConfigurationPair
from paceline.cluster.experiments.analysis.configurations import RepeatedTrials, section
from paceline.cluster.experiments.analysis.labels import words_of
from paceline.cluster.experiments.analysis.predictor import ModelState, Predictor
from paceline.cluster.experiments.analysis.statistics import median
from paceline.cluster.experiments.analysis.words import number, parameters, percent, size
from paceline.cluster.experiments.findings import Sentence
from paceline.monitoring.words import plural
from paceline.parallelism.planning.auto import RESERVE

MEMORY = "peak_memory_bytes"
MOST_TOLD = 3
#: A plan that keeps no less than this share of another one's state is not one that saves memory.
SAVES = 0.95


@dataclass(frozen=True)
class PlanSize:
    """A plan, and the largest model that it may hold on the ranks that were measured."""

    words: str  # its values, as sentences call them
    configuration: RepeatedTrials
    state: ModelState

    @property
    def peak(self) -> float | None:
        """The measured peak of a rank's memory in bytes: the median of the repeats; None: not measured."""
        values = self.configuration.figures[MEMORY]
        return median(values) if values else None

    def most_parameters(self, peak: float) -> float:
        """Return the parameters of the largest model that fits nine tenths of a slot's memory; no fewer than have fitted."""
        left = (1 - RESERVE) * self.state.memory_bytes - peak
        return self.state.parameters + max(0.0, left) / self.state.bytes_per_parameter


def sentences(predictor: Predictor | None, compared: Sequence[ConfigurationPair]) -> list[Sentence]:
    """Write for each two plans that keep different state the size of model above which the saving one is needed, and what that assumes.

    Of the pairs with the same two plans, the one with the most ranks is told. Where a peak was not measured, no size is told.
    """
    if predictor is None:
        return []
    most_ranks: dict[tuple[str, str], tuple[PlanSize, PlanSize]] = {}
    for pair in compared:
        found = _saving_first(predictor, pair)
        if found is None:
            continue
        key = found[0].words, found[1].words
        if key not in most_ranks or found[0].configuration.world_size > most_ranks[key][0].configuration.world_size:
            most_ranks[key] = found
    told = [each for plans in most_ranks.values() if (each := _told(*plans)) is not None][:MOST_TOLD]
    assumed = next((plans for plans in most_ranks.values() if all(plan.peak is not None for plan in plans)), None)
    findings = any(each.kind == "finding" for each in told)
    return [*told, *([_assumption(*assumed)] if findings and assumed is not None else [])]


def _saving_first(predictor: Predictor, pair: ConfigurationPair) -> tuple[PlanSize, PlanSize] | None:
    """The two plans of a pair, the one that keeps less state first; None where neither does, or more than the plan differs."""
    if any(section(path) != "parallelism" for path in pair.paths) or pair.first.world_size != pair.second.world_size:
        return None
    plans = []
    for configuration, values in zip((pair.first, pair.second), pair.values, strict=True):
        state = predictor.state(configuration.trials[0].index)
        if state is None:
            return None
        plans.append(PlanSize(words_of(pair.paths, values), configuration, state))
    saving, other = sorted(plans, key=lambda plan: plan.state.bytes_per_parameter)
    return (saving, other) if saving.state.bytes_per_parameter < SAVES * other.state.bytes_per_parameter else None


def _told(saving: PlanSize, other: PlanSize) -> Sentence | None:
    """The size above which the saving plan is needed, or why there is none; None where that plan holds no larger models."""
    indices = sorted((saving.configuration.index, other.configuration.index))
    saved, peak = saving.peak, other.peak
    if saved is None or peak is None:
        unknown = saving if saved is None else other
        text = f"From which size of model on {saving.words} is needed cannot be said: the peak of memory of {unknown.configuration.label} was not measured."
        return Sentence(kind="doubt", text=text, configurations=indices)
    most, saving_most = other.most_parameters(peak), saving.most_parameters(saved)
    if saving_most <= most:
        return None
    text = (
        f"Predicted, not measured: take {saving.words} above {parameters(most)} parameters at the latest. On "
        f"{plural(other.configuration.world_size, 'rank')} with {size(other.state.memory_bytes)} each, {other.words} holds no larger model, and "
        f"{saving.words} none above {parameters(saving_most)}."
    )
    return Sentence(kind="finding", text=text, configurations=indices)


def _assumption(saving: PlanSize, other: PlanSize) -> Sentence:
    kept = " and ".join(f"{number(plan.state.bytes_per_parameter)} bytes a parameter with {plan.words}" for plan in (other, saving))
    text = (
        f"Sizes of models assume that a rank keeps {kept} (the parameter, gradients with their partial sums, and the state of {other.state.optimizer}), uses "
        f"{percent(1 - RESERVE)} of its memory, and needs as much for all else as was measured with {parameters(other.state.parameters)} "
        f"parameters. A larger model has larger activations, so less may fit."
    )
    return Sentence(kind="doubt", text=text, configurations=sorted((saving.configuration.index, other.configuration.index)))
